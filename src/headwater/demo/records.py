"""What the simulated clients say: JSON, with a few records that are wrong or late on purpose.

    sensors/<room>     id, room, celsius, measured_at
    orders/<shop>      id, shop, amount, currency, placed_at
    chat/<room>        id, room, user, text, likes, written_at
    game/events        id, player, event, points, happened_at
    meters/<house>     id, house, kwh, read_at

All of them have `sent_at`, from which the pipeline knows how long they were under way.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from random import Random
from typing import Any

#: Of a hundred records, so many are late, so many are wrong, and so many are sent twice.
LATE, WRONG, TWICE = 1, 3, 1
_LATE_MINUTES = (15, 45)

Fields = dict[str, Any]
Say = Callable[[Random, int], tuple[str, Fields]]


@dataclass(frozen=True, slots=True)
class RecordKind:
    """One kind of records: `say` makes the topic and the fields of the next one."""

    name: str
    time: str  # the field that says when it happened
    number: str  # a field that is a number
    say: Say


def stream(kind: RecordKind, random: Random) -> Iterator[tuple[str, bytes]]:
    """Topics and payloads, without end."""
    run = f"{random.randrange(16**6):06x}"  # so that ids are new after a restart
    for number in count(1):
        topic, fields = kind.say(random, number)
        now = datetime.now(UTC)
        dice = random.randrange(100)
        late = timedelta(minutes=random.uniform(*_LATE_MINUTES)) if dice < LATE else timedelta()
        fields |= {"id": f"{number}-{run}", kind.time: _text(now - late), "sent_at": _text(now)}
        wrong = LATE <= dice < LATE + WRONG
        payload = _wrong(kind, fields, random) if wrong else json.dumps(fields).encode()
        yield topic, payload
        if LATE + WRONG <= dice < LATE + WRONG + TWICE:
            yield topic, payload


def _wrong(kind: RecordKind, fields: Fields, random: Random) -> bytes:
    """The same, but as things go wrong in life."""
    text = json.dumps(fields)
    match random.randrange(4):
        case 0:
            return text[: len(text) // 2].encode()  # cut off
        case 1:
            return json.dumps(fields | {kind.number: "n/a"}).encode()
        case 2:
            return json.dumps(fields | {kind.number: -9999}).encode()
        case _:
            return json.dumps({k: v for k, v in fields.items() if k != kind.time}).encode()


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def sensor(room: str) -> RecordKind:
    def say(random: Random, number: int) -> tuple[str, Fields]:
        celsius = round(random.gauss(21, 2), 1)
        return f"sensors/{room}", {"room": room, "celsius": celsius}

    return RecordKind(f"sensor {room}", "measured_at", "celsius", say)


def _order(random: Random, number: int) -> tuple[str, Fields]:
    shop = random.choice(("north", "south", "harbour"))
    amount = round(random.lognormvariate(3, 0.8), 2)
    fields = {"shop": shop, "amount": amount, "currency": "EUR"}
    return f"orders/{shop}", fields


#: BMTP has channels with numbers; the broker of the demo gives them these topics.
CHAT_CHANNELS = {1: "chat/lobby", 2: "chat/support"}
_TEXTS = ("good morning", "has my parcel left?", "thank you!", "who is playing tonight?", "brb")


def _message(random: Random, number: int) -> tuple[str, Fields]:
    topic = random.choice(tuple(CHAT_CHANNELS.values()))
    user = random.choice(("ada", "grace", "linus", "margaret"))
    room = topic.partition("/")[2]
    text, likes = random.choice(_TEXTS), random.randrange(5)
    return topic, {"room": room, "user": user, "text": text, "likes": likes}


def _event(random: Random, number: int) -> tuple[str, Fields]:
    event = random.choice(("joined", "scored", "scored", "scored", "left"))
    points = random.randrange(1, 100) if event == "scored" else 0
    player = f"player-{random.randrange(20)}"
    return "game/events", {"player": player, "event": event, "points": points}


def meter(house: str) -> RecordKind:
    def say(random: Random, number: int) -> tuple[str, Fields]:
        kwh = round(1000 + number * 0.01 + random.random() * 0.01, 3)
        return f"meters/{house}", {"house": house, "kwh": kwh}

    return RecordKind(f"meter {house}", "read_at", "kwh", say)


ORDERS = RecordKind("orders", "placed_at", "amount", _order)
CHAT = RecordKind("chat", "written_at", "likes", _message)
GAME = RecordKind("game", "happened_at", "points", _event)
