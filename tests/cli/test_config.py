"""`headwater config`, as a person and as a program sees it."""

import json
import os
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headwater.cli.commands import app
from headwater.cli.config import print_table, to_toml
from headwater.cli.configuration import data_directory, load_config
from headwater.config import SETTINGS, TABLES, Config, load
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
    assert ["log.sync", "always", "default"] in [line.split() for line in lines]
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
    found = tomllib.loads(text)
    assert not any(found.pop("listener").values())
    assert found == {table: {} for table in TABLES if table != "listener"}
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


ENTRIES = """\
[bmtp.channels]
42 = "sensors/a"

[prism]
prefetch = 7

[[prism.apps]]
client_id = "shop"
client_secret = "0123456789abcdef"

[[prism.queues]]
app = "shop"
name = "[orders]"
bindings = ["order.*", 'quo"ted']
max_deliveries = 3
"""


def test_entries_as_text() -> None:
    Path("headwater.toml").write_text(ENTRIES)
    lines = run().stdout.splitlines()
    rows = {line.split("  ")[0]: " ".join(line.split()[1:]) for line in lines}
    assert rows["bmtp.channels.42"] == "sensors/a headwater.toml:2"
    assert rows["prism.apps[0].client_id"] == "shop headwater.toml:8"
    assert rows["prism.queues[0].bindings"] == '["order.*", "quo\\"ted"] headwater.toml:14'
    assert rows["prism.queues[0].prefetch"] == "7 prism.prefetch"
    assert rows["prism.queues[0].max_deliveries"] == "3 headwater.toml:15"
    assert rows["prism.numeric_tags"] == "false default"


def test_entries_as_json() -> None:
    Path("headwater.toml").write_text(ENTRIES)
    document = json.loads(run("--json").stdout)
    assert list(document["settings"]) == list(SETTINGS)
    entries = document["entries"]
    assert entries["bmtp.channels"] == {
        "42": {"value": "sensors/a", "from": "file", "where": "headwater.toml:2"}
    }
    (queue,) = entries["prism.queues"]
    assert queue["bindings"]["value"] == ["order.*", 'quo"ted']
    assert queue["ack_seconds"] == {"value": 60, "from": "default", "where": "prism.ack_seconds"}


def test_entries_as_toml_can_be_used_as_a_file() -> None:
    secret = 'client_secret = "0123456789abcdef"'
    Path("one.toml").write_text(ENTRIES)
    loaded = load(Path("one.toml"), environ={})
    Path("two.toml").write_text(to_toml(loaded).replace('client_secret = "***"', secret))
    again = load(Path("two.toml"), environ={})
    assert again.config == loaded.config
    kinds = {key: origin.kind for key, origin in loaded.origins.items()}
    assert {key: origin.kind for key, origin in again.origins.items()} == kinds


def test_secrets_are_never_shown(capsys: pytest.CaptureFixture[str]) -> None:
    Path("headwater.toml").write_text(ENTRIES)
    key = {"HEADWATER_CRYSTAL_SECRET_KEY": "hunter2"}
    loaded = load(environ=key)
    print_table(loaded)
    shown = [run(**key), run("--json", **key), run("--toml", **key)]
    for text in (*(each.output for each in shown), capsys.readouterr().out):
        assert "shop" in text
        assert "***" in text
        assert "hunter2" not in text
        assert "0123456789abcdef" not in text
    assert "hunter2" not in repr(loaded)
    assert "0123456789abcdef" not in repr(loaded)


@pytest.mark.parametrize("text", [ENTRIES, "crystal.secret_key = 'hunter2'"])
def test_a_file_with_masked_secrets_is_refused(text: str) -> None:
    Path("headwater.toml").write_text(text)
    Path("two.toml").write_text(to_toml(load(environ={})))
    with pytest.raises(ConfigError, match=r"two\.toml:\d+: (prism|crystal)\..* must be a"):
        load(Path("two.toml"), environ={})


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


def test_variables_of_clients_are_no_misspelt_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_PRISM_CLIENT_ID", "shop")
    monkeypatch.setenv("HEADWATER_PRISM_CLIENT_IDS", "shop")
    (warning,) = load_config(None, {}).warnings
    assert warning.startswith("HEADWATER_PRISM_CLIENT_IDS is ignored")
