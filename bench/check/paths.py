"""The hot paths: what is sent, and to whom.

A path is set up once, and driven again and again. Bytes are those of `bench/wire`, made before.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from bench.check.stand import Client, Stand
from bench.load.bulk import chunk
from bench.wire import WIRES, Aim
from bench.wire.bmtp import STREAMS

PAYLOAD_BYTES = 128
TOPIC = "bench/check"
FLEET = 64
TOPICS = 10_000
READ_BYTES = 64 * 1024
_PARTS = 5  # of a window of stream ids


@dataclass(frozen=True, slots=True)
class Drive:
    """What is done in a round, and how many messages that are."""

    act: Callable[[], Awaitable[None]]
    messages: int


@dataclass(frozen=True, slots=True)
class Path:
    name: str
    #: Sets it up for about so many messages a round.
    prepare: Callable[[Stand, int], Awaitable[Drive]]
    messages: int


async def stream(
    stand: Stand, messages: int, wire: str, subscribers: int = 1, spread: int = 1
) -> Drive:
    """One publisher that never pauses, and some subscribers, or none."""
    data, count = chunk(Aim(wire, ("", 0), TOPIC, PAYLOAD_BYTES, spread=spread))
    for _ in range(subscribers):
        pattern = TOPIC if spread == 1 else WIRES[wire].join(TOPIC, WIRES[wire].any_level, "v")
        await stand.subscriber(wire, pattern)
    publisher = await stand.publisher(wire, TOPIC)
    repeats = max(1, messages // count)
    # As much at once as a socket gives: a chunk of many topics is longer.
    reads = [data[at : at + READ_BYTES] for at in range(0, len(data), READ_BYTES)]

    async def act() -> None:
        for _ in range(repeats):
            for read in reads:
                await publisher.send(read)

    return Drive(act, repeats * count)


async def fleet(stand: Stand, messages: int, wire: str, acked: bool) -> Drive:
    """Many publishers with a topic each, and one message in every wave: with a subscriber each that
    gets it, or acknowledged, and then the next wave follows when all acknowledgements are there."""
    members: list[tuple[Client, bytes]] = []
    for number in range(FLEET):
        topic = WIRES[wire].join(TOPIC, f"{number:03d}")
        if not acked:
            await stand.subscriber(wire, topic)
        (body,) = WIRES[wire].payloads(1, PAYLOAD_BYTES, seed=number)
        data = (
            WIRES[wire].acked(topic, [body], number, 0).data
            if acked
            else WIRES[wire].publish(topic, body)
        )
        members.append((await stand.publisher(wire, topic), data))

    async def wave() -> None:
        for client, data in members:
            client.send_now(data)
        await asyncio.sleep(0)

    answer = await stand.learn(wave) if acked else 0
    waves = max(1, messages // FLEET)

    async def act() -> None:
        for _ in range(waves):
            before = stand.received
            await wave()
            await stand.until(before + answer)

    return Drive(act, waves * FLEET)


async def windows(stand: Stand, messages: int) -> Drive:
    """BMTP with QoS 1: as many messages as there are stream ids, then their acknowledgements."""
    wire, part = WIRES["bmtp"], STREAMS // _PARTS
    publisher = await stand.publisher("bmtp", TOPIC)
    bodies = wire.payloads(part, PAYLOAD_BYTES)
    bursts = [wire.acked(TOPIC, bodies, 0, i * part).data for i in range(_PARTS)]

    async def window() -> None:
        for burst in bursts:
            await publisher.send(burst)

    answer = await stand.learn(window)
    repeats = max(1, messages // STREAMS)

    async def act() -> None:
        for _ in range(repeats):
            before = stand.received
            await window()
            await stand.until(before + answer)

    return Drive(act, repeats * STREAMS)


#: The number of messages makes a round of some hundredths of a second.
PATHS = (
    Path("PSMB 1 → 1", partial(stream, wire="psmb"), 100_000),
    Path("PSMB 1 → 8", partial(stream, wire="psmb", subscribers=8), 80_000),
    Path("BPSP 1 → 1", partial(stream, wire="bpsp"), 100_000),
    Path("BPSP, many topics in turn", partial(stream, wire="bpsp", spread=TOPICS), TOPICS),
    Path("PSMB, single messages", partial(fleet, wire="psmb", acked=False), 5_000),
    Path("BPSP, single messages", partial(fleet, wire="bpsp", acked=False), 5_000),
    Path("PSMB, single messages acknowledged", partial(fleet, wire="psmb", acked=True), 5_000),
    Path("BPSP, single messages acknowledged", partial(fleet, wire="bpsp", acked=True), 5_000),
    Path("BMTP QoS 1", windows, 20_000),
    Path("Prism, publish", partial(stream, wire="prism", subscribers=0), 50_000),
    Path("CrystalConnector, publish", partial(stream, wire="crystal", subscribers=0), 50_000),
)
