"""The frame of the command line: what a person sees when something goes wrong, and how fast."""

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import headwater
from headwater import cli, compiled
from headwater.cli import commands
from headwater.errors import Code, HeadwaterError, Refusal


def run(*arguments: str, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the real program."""
    command = [sys.executable, "-c", "from headwater.cli import main; main()", *arguments]
    environ = {**os.environ, **(environ or {})}
    return subprocess.run(command, capture_output=True, text=True, env=environ, timeout=60)


def exit_code(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> int:
    """The exit code of a command that ends in an error."""

    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(commands, "app", fail)
    with pytest.raises(SystemExit) as caught:
        cli.main(["config"])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_version() -> None:
    result = CliRunner().invoke(commands.app, ["--version"])
    assert (result.exit_code, result.stdout) == (
        0,
        f"headwater {headwater.__version__} ({compiled.state})\n",
    )


def test_help_lists_the_commands() -> None:
    result = CliRunner().invoke(commands.app, ["--help"])
    assert result.exit_code == 0
    for name in ("serve", "pub", "sub", "config"):
        assert f"\n  {name} " in result.stdout


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (HeadwaterError("the river is dry"), "the river is dry"),
        (Refusal(Code.NOT_FOUND, "no\nsuch topic"), "no such topic"),
        (PermissionError(13, "Permission denied", "/x/y"), "/x/y: Permission denied"),
        (OSError(98, "Address already in use"), "Address already in use"),
        (KeyError("a"), "unexpected error (KeyError: 'a'); HEADWATER_DEBUG=1 shows the traceback"),
    ],
)
def test_an_error_is_one_line(
    error: Exception,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("HEADWATER_DEBUG", raising=False)
    assert exit_code(monkeypatch, error) == 1
    assert capsys.readouterr() == ("", f"headwater: error: {sentence}\n")


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_DEBUG", "1")
    with pytest.raises(HeadwaterError):
        exit_code(monkeypatch, HeadwaterError("no"))


def test_ctrl_c_is_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(monkeypatch, KeyboardInterrupt()) == 130
    assert capsys.readouterr() == ("", "")


def test_the_program_reports_an_error_without_a_traceback() -> None:
    result = run("config", environ={"HEADWATER_LOG_SYNC": "never", "HEADWATER_DEBUG": ""})
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        'headwater: error: HEADWATER_LOG_SYNC: log.sync must be "always", "interval" or "os", '
        'not "never"\n'
    )
    result = run("config", environ={"HEADWATER_LOG_SYNC": "never", "HEADWATER_DEBUG": "1"})
    assert "Traceback" in result.stderr


def test_wrong_usage() -> None:
    result = run("confgi")
    assert (result.returncode, result.stdout) == (2, "")
    assert "No such command 'confgi'" in result.stderr


def test_a_reader_that_has_enough_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-c", "from headwater.cli import main; main()", "config"]
    result = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(write)
    assert result.stderr == ""


def test_help_needs_nothing_that_is_slow_to_import() -> None:
    program = (
        "import sys, headwater.cli\n"
        "try: headwater.cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "slow = {'pcre2', 'pyarrow', 'rich', 'sqlite3', 'uvloop'}\n"
        "print(sorted(slow & set(sys.modules)), file=sys.stderr)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.stderr == "[]\n"
