"""A broker, an attack or several, and what a well-behaved client sees of it."""

import os
import socket
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
#: Beyond a limit, the p99 of others is at most so many times that in peace.
OVERLOAD_FACTOR = 2.0
#: The ceilings of the broker (limits.input_bytes, limits.output_bytes), and what else it needs.
GROWTH_MIB = 256 + 256 + 128
#: So much may be left when the attack is over, and so long it may take.
LEFT_MIB = 50
SETTLE_SECONDS = 30.0
WELL_BEHAVED = ("bpsp", "psmb")
#: So often someone asks the console for its health, on a new connection each time; and so long 99
#: of 100 answers may take.
HEALTH_RATE = 20
HEALTH_MS = 100.0
NEVER = 3_600_000_000_000


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
    health_ms: float = 0.0  # of the console, if there was one; 99 of 100 answers
    overload: bool = False  # the broker was beyond a limit

    @property
    def faults(self) -> list[str]:
        found = []
        if self.worst_ms > self.quiet_ms + WAIT_MS:
            found.append(f"someone waited {self.worst_ms:.0f} ms")
        if self.overload and self.p99_ms > self.quiet_ms * OVERLOAD_FACTOR:
            found.append(f"the p99 rose from {self.quiet_ms:.2f} to {self.p99_ms:.2f} ms")
        if self.growth_mib > GROWTH_MIB:
            found.append(f"the broker grew by {self.growth_mib:.0f} MiB")
        if self.left_mib > LEFT_MIB:
            found.append(f"{self.left_mib:.0f} MiB were not given back")
        if self.health_ms > HEALTH_MS:
            found.append(f"/healthz took {self.health_ms:.0f} ms")
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
    listeners = {ATTACKS[each].listener for each in attacks} - {None}
    settings = {f"listen.{each}": f"{HOST}:0" for each in listeners}
    limit = ATTACKS[attacks[0]].limit
    if limit is not None:
        settings["limits.connections"] = str(limit)
    with yard.server("headwater", settings) as server, Crew() as crew:
        ports = server.ports
        quiet = _watch(crew, ports, QUIET_SECONDS)
        hostile = [_prepare(crew, ports, each, few=few) for each in attacks]
        server.reset_peak()
        before, began = server.memory(), time.monotonic()
        seconds = _length(attacks, few)
        watchers = [_watcher(crew, ports, wire, seconds) for wire in WELL_BEHAVED]
        asking = [crew.start(health, ports["console"], seconds)] if "console" in ports else []
        for worker in (*watchers, *asking):
            worker.wait(str)
            worker.go()
        for worker in hostile:
            worker.go()
        done = sum(worker.wait(int, LONGEST_ATTACK_SECONDS) for worker in hostile)
        taken = sorted(each for worker in watchers for each in _taken(worker))
        answers = sorted(each for worker in asking for each in _taken(worker))
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
            health_ms=percentile(answers, 0.99) / 1e6 if answers else 0.0,
            overload=limit is not None,
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


def health(port: int, seconds: float) -> Stages:
    """Ask the console for its health at a steady pace; an answer that is none takes for ever."""
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    while _ask(port, request) == NEVER:  # it is a process of its own, and may not be there yet
        time.sleep(0.1)
    yield "ready"
    taken, started = list[int](), time.monotonic_ns()
    for number in range(int(HEALTH_RATE * seconds)):
        due = started + number * 1_000_000_000 // HEALTH_RATE
        time.sleep(max(due - time.monotonic_ns(), 0) / 1e9)
        taken.append(_ask(port, request))
    return Looped(len(taken), started, time.monotonic_ns(), tuple(taken))


def _ask(port: int, request: bytes) -> int:
    """How many nanoseconds it took."""
    began = time.monotonic_ns()
    try:
        with socket.create_connection((HOST, port), 5.0) as wire:
            wire.sendall(request)
            answered = wire.recv(4096).startswith(b"HTTP/1.1 200 ")
    except OSError:
        return NEVER
    return time.monotonic_ns() - began if answered else NEVER


def _watch(crew: Crew, ports: Ports, seconds: float) -> list[int]:
    watchers = [_watcher(crew, ports, wire, seconds) for wire in WELL_BEHAVED]
    for worker in watchers:
        worker.wait(str)
        worker.go()
    return sorted(each for worker in watchers for each in _taken(worker))


def _taken(worker: Worker) -> tuple[int, ...]:
    return worker.wait(Looped, LONGEST_ATTACK_SECONDS).nanoseconds
