"""`headwater config`, as a person and as a program sees it."""

import json
import os
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headwater.cli import app
from headwater.cli.common import data_directory, load_config
from headwater.cli.config import print_table, to_toml
from headwater.config import SETTINGS, Config, load
from headwater.errors import ConfigError

FILE = """\
data = "log [of] mine"

[listen]
psmb = "[::1]:0"
prism = "off"

[log]
retention_bytes = 70000
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory and an environment without any configuration."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("HEADWATER_")]:
        monkeypatch.delenv(name)


def run(*arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(app, ["config", *arguments], env=environ, catch_exceptions=False)


def test_defaults_as_text() -> None:
    result = run()
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "configuration file: none"
    assert lines[1].split() == ["key", "value", "from"]
    assert [line.split()[0] for line in lines[2:]] == list(SETTINGS)
    assert "log.sync                    always          default" in lines
    widest = max(map(len, SETTINGS))
    assert all(line[widest : widest + 2] == "  " != line[widest + 2] for line in lines[1:])


def test_each_value_says_where_it_comes_from() -> None:
    Path("headwater.toml").write_text(FILE)
    lines = run(HEADWATER_LOG_SYNC="os").stdout.splitlines()
    assert lines[0] == "configuration file: headwater.toml (in the working directory)"
    rows = {line.split("  ")[0]: " ".join(line.split()[1:]) for line in lines}
    assert rows["data"] == "log [of] mine headwater.toml:1"
    assert rows["listen.psmb"] == "[::1]:0 headwater.toml:4"
    assert rows["log.retention_bytes"] == "70kB headwater.toml:8"
    assert rows["log.sync"] == "os HEADWATER_LOG_SYNC"


def test_a_file_by_name() -> None:
    Path("mine.toml").write_text(FILE)
    for result in (run("--config", "mine.toml"), run(HEADWATER_CONFIG="mine.toml")):
        assert result.stdout.startswith("configuration file: mine.toml\n")
    with pytest.raises(ConfigError, match=r"^cannot read the configuration none\.toml"):
        run("--config", "none.toml")


def test_on_a_terminal_it_is_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    Path("headwater.toml").write_text(FILE)
    print_table(load(environ={}))
    output = capsys.readouterr().out
    assert "configuration file: headwater.toml" in output
    # Brackets are no markup, and rich has drawn lines.
    assert "log [of] mine" in output
    assert "[::1]:0" in output
    assert "┃" in output


def test_json() -> None:
    Path("headwater.toml").write_text(FILE)
    document = json.loads(run("--json", HEADWATER_LOG_SYNC="os").stdout)
    assert document["file"] == "headwater.toml"
    settings = document["settings"]
    assert list(settings) == list(SETTINGS)
    assert settings["listen.prism"] == {"value": "off", "from": "file", "where": "headwater.toml:5"}
    assert settings["limits.connections"]["value"] == 20_000
    assert settings["log.sync"]["from"] == "environment"


def test_toml_without_configuration_is_all_comments() -> None:
    text = run("--toml").stdout
    assert tomllib.loads(text) == {"listen": {}, "log": {}, "limits": {}, "psmb": {}}
    for setting in SETTINGS.values():
        assert f"# {setting.meaning}\n" in text


def test_toml_can_be_used_as_a_file() -> None:
    Path("one.toml").write_text(FILE + 'sync = "os"\n[psmb]\nkeepalive_seconds = 2.5\n')
    loaded = load(Path("one.toml"), {"data": 'quo"ted \\ \x7f'}, {})
    Path("two.toml").write_text(to_toml(loaded))
    assert load(Path("two.toml"), environ={}).config == loaded.config != Config()


def test_toml_with_every_comment_removed_has_the_defaults() -> None:
    lines = run("--toml").stdout.splitlines()
    Path("all.toml").write_text(
        "\n".join(line.removeprefix("# ") if " = " in line else line for line in lines)
    )
    loaded = load(Path("all.toml"), environ={})
    assert loaded.config == Config()
    assert {origin.kind for origin in loaded.origins.values()} == {"file"}


def test_json_and_toml_exclude_each_other() -> None:
    assert run("--json", "--toml").exit_code == 2


def test_warnings_go_to_standard_error() -> None:
    result = run(HEADWATER_LOG_SYNK="os")
    assert result.stderr.startswith("headwater: warning: HEADWATER_LOG_SYNK is ignored")
    assert "SYNK" not in result.stdout


def test_the_data_directory_is_the_flag_else_the_configuration() -> None:
    assert data_directory() == Path("data")
    Path("headwater.toml").write_text("data = 'there'")
    assert data_directory() == Path("there")
    Path("broken.toml").write_text("data = ")
    assert data_directory(Path("here"), Path("broken.toml")) == Path("here")


def test_flags_that_were_not_given_change_nothing() -> None:
    flags = {"data": None, "log.sync": "os"}
    loaded = load_config(None, flags)
    assert (loaded.config.data, loaded.config.log.sync) == (Path("data"), "os")
