"""Random rules, principals, topics and protocols: what a broker allows is what a plain reference
says, for clients of all five protocols, over Flight and the API."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyarrow import flight

from headwater.actions import ACTIONS, ANONYMOUS
from headwater.client import connect
from headwater.control import call
from headwater.errors import HeadwaterError
from headwater.identity.book import AccessBook
from headwater.identity.rules import DEFAULT
from headwater.rights import Principal, Rule
from tests.e2e.process import PATIENCE, SECRET, BrokerProcess
from tests.flight.test_entrance import Caller
from tests.identity.test_rights import reference

PASSWORD = "correct horse"
ROUNDS = 12
LEVELS = ("a", "b", "ann")
TOPICS = [f"{one}/{other}" for one in LEVELS for other in LEVELS]
PATTERNS = ("*", "a/*", "+/b", "{user}/*", "b/ann", "a/+", "+/{user}")
TOML = f"""
[[prism.apps]]
client_id = "shop"
client_secret = "{SECRET}"
role = "mine"

[[crystal.groups]]
name = "lobby"
secret_key = "{SECRET}"
role = "mine"

[bmtp.channels]
{"".join(f'{number} = "{topic}"' + chr(10) for number, topic in enumerate(TOPICS))}
"""
ANN, SHOP = Principal("user", "ann", "mine"), Principal("app", "shop", "mine")
LOBBY, NOBODY = Principal("app", "lobby", "mine"), Principal(ANONYMOUS)
SUBJECTS = ("user:ann", "app:shop", "app:lobby", "role:mine", ANONYMOUS)


class House:
    """One broker, and the ways into it."""

    def __init__(self, broker: BrokerProcess, token: str) -> None:
        self._broker = broker
        self._token = token
        host = {name: f"127.0.0.1:{port}" for name, port in broker.ports.items()}
        self.urls = {
            "bpsp": (f"bpsp://ann:correct%20horse@{host['bpsp']}", ANN),
            "prism": (f"prism://shop:{SECRET}@{host['prism']}", SHOP),
            "crystal": (f"crystal://{SECRET}@{host['crystal']}", LOBBY),
            "psmb": (f"psmb://{host['psmb']}", NOBODY),
            "bmtp": (f"bmtp://{host['bmtp']}", NOBODY),
        }

    async def publishes(self, name: str, topic: str) -> bool:
        async with connect(self.urls[name][0]) as client:
            called = str(TOPICS.index(topic)) if name == "bmtp" else topic
            return await is_allowed(client.publish(called, b"x"))

    async def subscribes(self, name: str, topic: str) -> bool:
        """A channel has a number, and a queue's name is a key, with dots."""
        called = {"bmtp": str(TOPICS.index(topic)), "prism": topic.replace("/", ".")}
        async with connect(self.urls[name][0]) as client:
            return await is_allowed(client.subscribe(called.get(name, topic)))

    def over_flight(self, topic: str) -> dict[str, bool]:
        caller = Caller(self._broker, self._token)
        return {
            "publish": _flies(lambda: caller.append(f"p{id(caller)}", 1, topic)),
            "history": _flies(lambda: caller.read(topics=[topic])),
        }


async def is_allowed(work: Awaitable[Any]) -> bool:
    try:
        await asyncio.wait_for(work, PATIENCE)
    except HeadwaterError:
        return False
    return True


def _flies(act: Callable[[], Any]) -> bool:
    try:
        act()
    except flight.FlightUnauthorizedError:
        return False
    return True


def some_rules(chance: Random) -> list[Rule]:
    return [
        Rule(
            chance.choice(SUBJECTS),
            frozenset(chance.sample(list(ACTIONS), chance.randint(1, 3))),
            chance.choice(PATTERNS),
        )
        for _ in range(chance.randint(1, 6))
    ]


def put(data: Path, old: list[Rule], new: list[Rule]) -> None:
    """Exchange the rules of a broker that runs."""
    for do, rules in (("access.revoke", old), ("access.allow", new)):
        for rule in _merged(rules):
            call(data, do, who=rule.who, may=sorted(rule.actions), topics=rule.topics)


def _merged(rules: list[Rule]) -> list[Rule]:
    """As the file has them: one for each subject and pattern."""
    found: dict[tuple[str, str], frozenset[str]] = {}
    for rule in rules:
        key = rule.who, rule.topics
        found[key] = found.get(key, frozenset()) | rule.actions
    return [Rule(who, actions, topics) for (who, topics), actions in found.items()]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_broker_allows_what_the_reference_says(tmp_path: Path, seed: int) -> None:
    chance = Random(seed)
    data = tmp_path / "data"
    book = AccessBook(data)
    book.add_user("ann", "mine", PASSWORD)
    token = book.add_token("ann")["token"]

    async def check(house: House) -> int:
        rules = list(DEFAULT)
        asked = 0
        for _ in range(ROUNDS):
            fresh = some_rules(chance)
            await asyncio.to_thread(put, data, rules, fresh)
            rules = fresh
            for name, (_, who) in house.urls.items():
                topic = chance.choice(TOPICS)
                expected = reference(who, rules, "publish", topic)
                assert await house.publishes(name, topic) == expected, (name, topic, rules)
                # Clients of queues make them by consuming.
                action = "queues" if name in ("prism", "bmtp") else "subscribe"
                expected = reference(who, rules, action, topic)
                found = await house.subscribes(name, topic)
                assert found == expected, (name, action, topic, rules)
                asked += 2
            topic = chance.choice(TOPICS)
            told = await asyncio.to_thread(house.over_flight, topic)
            for action, found in told.items():
                assert found == reference(ANN, rules, action, topic), (action, topic, rules)
        return asked

    with BrokerProcess(data, toml=TOML) as broker:
        assert asyncio.run(check(House(broker, token))) == 10 * ROUNDS
