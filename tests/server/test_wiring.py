"""From the configuration to the parts: what is said there arrives."""

from pathlib import Path

import pytest

from headwater import config, units
from headwater.errors import ConfigError
from headwater.gate import KnownApp
from headwater.protocols.base import Terms
from headwater.protocols.prism import codec as prism
from headwater.registry import REGISTRY
from headwater.server import wiring


def loaded(tmp_path: Path, text: str) -> config.Config:
    file = tmp_path / "headwater.toml"
    file.write_text(text)
    return config.load(file, environ={}).config


def test_what_is_chosen_about_protocols_arrives(tmp_path: Path) -> None:
    chosen = loaded(
        tmp_path,
        """
[psmb]
keepalive_seconds = 7
[bmtp]
delivery = "balanced"
dedup_seconds = 9
channels = { 42 = "sensors/a" }
[prism]
ack_seconds = 12
max_deliveries = 13
[[prism.apps]]
client_id = "shop"
client_secret = "a secret, long enough"
[[prism.queues]]
app = "shop"
name = "orders"
bindings = ["order.#"]
prefetch = 14
[crystal]
secret_key = "hush"
""",
    )
    apps: dict[str, KnownApp] = {}
    services = wiring.services(chosen, apps)
    assert list(services) == list(REGISTRY)
    assert apps == {
        "shop": KnownApp("prism", "a secret, long enough"),
        "crystal": KnownApp("crystal", "hush"),
    }
    assert wiring.repeat_seconds(services) == 9
    assert not any(service.off for service in services.values())
    (queue,) = services["prism"].queues()
    assert (queue.prefetch, queue.ack_seconds, queue.max_deliveries) == (14, 12, 13)
    shared = wiring.queue_spec(services, "bmtp/sensors/a")
    assert shared is not None and shared.shared
    psmb = services["psmb"].session(Terms("peer"))
    assert psmb.idle_after == 7


def test_who_is_shut_out_is_told() -> None:
    services = wiring.services(config.Config(), {})
    assert [name for name, service in services.items() if service.off] == ["crystal"]
    assert "secret_key" in services["crystal"].off
    assert [name for name, service in services.items() if service.warning()] == ["prism"]
    assert "headwater app add" in services["prism"].warning()


@pytest.mark.parametrize(
    "name", ["prism/shop/orders", "prism/shop/default", "prism/a%2Fb/c%25", "bmtp/bmtp/42"]
)
def test_a_queue_is_found_again_by_its_name(name: str) -> None:
    spec = wiring.queue_spec(wiring.services(config.Config(), {}), name)
    assert spec is not None
    assert spec.name == name


@pytest.mark.parametrize("name", ["psmb/x", "nothing/x", "prism/only", "prism/a/b/c"])
def test_what_is_no_queue_has_no_specification(name: str) -> None:
    assert wiring.queue_spec(wiring.services(config.Config(), {}), name) is None


def test_published_secrets_are_refused_by_the_configuration() -> None:
    for secret in prism.EXAMPLE_SECRETS:
        with pytest.raises(ValueError):
            units.app_secret().read(secret)


def test_an_app_has_one_default_queue(tmp_path: Path) -> None:
    queue = '[[prism.queues]]\napp = "shop"\nname = "{}"\n'
    with pytest.raises(ConfigError, match=r"headwater\.toml:\d+: .*default"):
        loaded(tmp_path, queue.format("") + queue.format("default"))
