"""A broker, an attack or several, and what a well-behaved client sees of it."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.brokers import Yard
from bench.crew import Crew, Stages, Worker
from bench.figures import percentile
from bench.load.pairs import Looped, probe
from bench.wire import Aim
from hostile.attacks import ATTACKS, HOST, Ports

MIB = 1024 * 1024
RATE = 200  # messages a second, of each well-behaved client
QUIET_SECONDS = 3.0
LONGEST_ATTACK_SECONDS = 120.0
#: Nobody may wait longer than this beyond what 99 of 100 messages take in peace.
WAIT_MS = 50.0
#: The ceilings of the broker (limits.input_bytes, limits.output_bytes), and what else it needs.
GROWTH_MIB = 256 + 256 + 128
#: So much may be left when the attack is over, and so long it may take.
LEFT_MIB = 50
SETTLE_SECONDS = 30.0
WELL_BEHAVED = ("bpsp", "psmb")


@dataclass(frozen=True, slots=True)
class HostileVerdict:
    attack: str
    done: int  # by the hostile clients: messages, subscriptions, connections …
    delivered: int  # to the well-behaved ones: all that they have sent, or there is no verdict
    seconds: float
    quiet_ms: float
    p99_ms: float
    worst_ms: float
    growth_mib: float
    left_mib: float

    @property
    def faults(self) -> list[str]:
        found = []
        if self.worst_ms > self.quiet_ms + WAIT_MS:
            found.append(f"someone waited {self.worst_ms:.0f} ms")
        if self.growth_mib > GROWTH_MIB:
            found.append(f"the broker grew by {self.growth_mib:.0f} MiB")
        if self.left_mib > LEFT_MIB:
            found.append(f"{self.left_mib:.0f} MiB were not given back")
        return found


def perform(
    yard: Yard,
    name: str,
    attacks: Sequence[str],
    *,
    few: bool,
    settle_seconds: float = SETTLE_SECONDS,
) -> HostileVerdict:
    """One attack, or several at the same time."""
    with yard.server("headwater") as server, Crew() as crew:
        ports = server.ports
        quiet = _watch(crew, ports, QUIET_SECONDS)
        hostile = [_prepare(crew, ports, each, few=few) for each in attacks]
        server.reset_peak()
        before, began = server.memory(), time.monotonic()
        watchers = [_watcher(crew, ports, wire, _length(attacks, few)) for wire in WELL_BEHAVED]
        for worker in watchers:
            worker.wait(str)
            worker.go()
        for worker in hostile:
            worker.go()
        done = sum(worker.wait(int, LONGEST_ATTACK_SECONDS) for worker in hostile)
        taken = sorted(each for worker in watchers for each in _taken(worker))
        growth = server.peak_memory() - before
        deadline = time.monotonic() + settle_seconds
        while server.memory() - before > LEFT_MIB * MIB and time.monotonic() < deadline:
            time.sleep(0.2)
        return HostileVerdict(
            attack=name,
            done=done,
            delivered=len(taken),
            seconds=time.monotonic() - began,
            quiet_ms=percentile(quiet, 0.99) / 1e6,
            p99_ms=percentile(taken, 0.99) / 1e6,
            worst_ms=taken[-1] / 1e6,
            growth_mib=growth / MIB,
            left_mib=(server.memory() - before) / MIB,
        )


def _length(attacks: Sequence[str], few: bool) -> float:
    return QUIET_SECONDS if few else 10.0 + 5.0 * len(attacks)


def _prepare(crew: Crew, ports: Ports, name: str, *, few: bool) -> Worker:
    attack = ATTACKS[name]
    worker = crew.start(_from_afar, attack.job, ports, attack.few if few else attack.numbers)
    worker.wait(str)
    return worker


def _from_afar(job: Callable[..., Stages], ports: Ports, numbers: tuple[int, ...]) -> Stages:
    """Hostile clients have machines of their own: here, they get what is left of the processors.
    Otherwise the well-behaved ones would wait for those, and not for the broker."""
    os.nice(19)
    return (yield from job(ports, *numbers))


def _watcher(crew: Crew, ports: Ports, wire: str, seconds: float) -> Worker:
    aim = Aim(wire, (HOST, ports[wire]), f"well/behaved/{wire}", 128)
    return crew.start(probe, aim, RATE, seconds)


def _watch(crew: Crew, ports: Ports, seconds: float) -> list[int]:
    watchers = [_watcher(crew, ports, wire, seconds) for wire in WELL_BEHAVED]
    for worker in watchers:
        worker.wait(str)
        worker.go()
    return sorted(each for worker in watchers for each in _taken(worker))


def _taken(worker: Worker) -> tuple[int, ...]:
    return worker.wait(Looped, LONGEST_ATTACK_SECONDS).nanoseconds
