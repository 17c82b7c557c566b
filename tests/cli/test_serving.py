"""`headwater serve` without the parser of the other commands."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.cli.serve import serve
from headwater.cli.serving import LogFormat, ServeOptions, parse

JSON = LogFormat.json


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("", ServeOptions()),
        ("--data d", ServeOptions(data=Path("d"))),
        ("--config=c.toml --data=d", ServeOptions(config=Path("c.toml"), data=Path("d"))),
        ("-v --log-format json", ServeOptions(verbose=True, log_format=JSON)),
        ("--log-format=json --verbose", ServeOptions(verbose=True, log_format=JSON)),
        ("--data a=b", ServeOptions(data=Path("a=b"))),
        ("--data=a=b", ServeOptions(data=Path("a=b"))),
    ],
)
def test_plain_options(words: str, options: ServeOptions) -> None:
    assert parse(words.split()) == options


@pytest.mark.parametrize(
    "words",
    [
        *("--help", "--data", "--data=", "--data --verbose", "--verbose=1", "--dat d", "extra"),
        *("-vv", "--log-format xml", "--data d --", "--config"),
    ],
)
def test_what_is_not_plain_is_left_to_the_parser(words: str) -> None:
    assert parse(words.split()) is None


def test_both_ways_have_the_same_options() -> None:
    given = inspect.signature(serve).parameters
    assert list(given) == list(ServeOptions.__dataclass_fields__)
    assert [each.default for each in given.values()] == [
        getattr(ServeOptions(), name) for name in given
    ]


def test_the_parser_still_tells_what_is_wrong() -> None:
    command = [sys.executable, "-m", "headwater", "serve", "--dat", "d"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout) == (2, "")
    assert "No such option" in result.stderr


def test_a_broker_goes_without_the_parser(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from headwater import cli\n"
        "from headwater.server import server\n"
        "server.run = lambda *_: print(sorted(heavy & set(sys.modules)))\n"
        "heavy = {'pydantic', 'rich', 'typer'}\n"
        f"cli.main(['serve', '--data', {str(tmp_path)!r}])\n"
    )
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout, result.stderr) == (0, "[]\n", "")
