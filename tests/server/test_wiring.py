"""From the configuration to the parts: what is said there arrives."""

from dataclasses import fields
from pathlib import Path

import pytest

from headwater import config, units
from headwater.errors import ConfigError
from headwater.protocols import REGISTRY, prism
from headwater.server import wiring


def loaded(tmp_path: Path, text: str) -> config.Config:
    file = tmp_path / "headwater.toml"
    file.write_text(text)
    return config.load(file, environ={}).config


def test_the_defaults_of_the_configuration_are_those_of_the_protocols() -> None:
    made = wiring.protocol_settings(config.Config(), {})
    assert made == {name: protocol.settings() for name, protocol in REGISTRY.items()}


def test_every_choice_arrives(tmp_path: Path) -> None:
    chosen = loaded(
        tmp_path,
        """
[psmb]
keepalive_seconds = 7
keepalive_misses = 8
[bmtp]
dialect = "bitmq"
envelope = "binary"
delivery = "balanced"
idle_seconds = 9
channels = { 42 = "sensors/a" }
[prism]
numeric_tags = true
sign_seconds = 10
prefetch = 11
ack_seconds = 12
max_deliveries = 13
[[prism.queues]]
app = "shop"
name = "orders"
bindings = ["order.#"]
prefetch = 14
[crystal]
secret_key = "hush"
""",
    )
    apps = {"shop": "secret"}
    made = wiring.protocol_settings(chosen, apps)
    defaults = wiring.protocol_settings(config.Config(), {})
    for name, settings in made.items():
        for each in fields(settings):
            if each.compare:
                same = getattr(settings, each.name) == getattr(defaults[name], each.name)
                assert not same, f"{name}.{each.name} did not arrive"
    queue = prism.queue_spec(made["prism"], "shop", "orders")
    assert (queue.prefetch, queue.ack_seconds, queue.max_deliveries) == (14, 12, 13)


@pytest.mark.parametrize(
    "name", ["prism/shop/orders", "prism/shop/default", "prism/a%2Fb/c%25", "bmtp/bmtp/42"]
)
def test_a_queue_is_found_again_by_its_name(name: str) -> None:
    settings = wiring.protocol_settings(config.Config(), {})
    spec = wiring.queue_spec(settings, name)
    assert spec is not None
    assert spec.name == name


@pytest.mark.parametrize("name", ["psmb/x", "nothing/x", "prism/only", "prism/a/b/c"])
def test_what_is_no_queue_has_no_specification(name: str) -> None:
    assert wiring.queue_spec(wiring.protocol_settings(config.Config(), {}), name) is None


def test_published_secrets_are_refused_by_the_configuration() -> None:
    for secret in prism.EXAMPLE_SECRETS:
        with pytest.raises(ValueError):
            units.app_secret().read(secret)


def test_an_app_has_one_default_queue(tmp_path: Path) -> None:
    queue = '[[prism.queues]]\napp = "shop"\nname = "{}"\n'
    with pytest.raises(ConfigError, match=r"headwater\.toml:\d+: .*default"):
        loaded(tmp_path, queue.format("") + queue.format("default"))
