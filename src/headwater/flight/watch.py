"""Watches over the connections to Flight: what they hold, how long they say nothing, how many.

gRPC takes in a message of up to 2 GiB before anyone sees it, token or not, and `pyarrow` has no
setting against it. So a thread asks the kernel 10 to 50 times a second how much has arrived, and
closes a connection that sends more than anyone has a reason to.

What belongs to no write is a request, and those are small; what belongs to one is bounded by
`flight.record_batch_bytes` and what gRPC reads ahead. Where something has to be closed, clients
that nobody has let in go first, and those with a call that goes on go last: a Flight client whose
connection is closed between two calls connects again, and does not notice unless it calls in that
very moment.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from headwater.errors import OVER_LIMITS
from headwater.flight.balances import Balance, WriteAllowance
from headwater.flight.kernel import Kernel, Wire
from headwater.protocols.base import ServiceCounter
from headwater.sockets import hang_up_on

logger = logging.getLogger(__name__)

BUSY_SECONDS = 0.02
REST_SECONDS = 0.1
# However much there is to look at, it takes no more of the time than one part in so many.
SHARE = 60
MOST_SECONDS = 0.2
BUSY_BYTES = 64 * 1024
# Of `flight.input_bytes`, clients may have one part in so many for what is no write.
REQUESTS_SHARE = 8
# How far gRPC reads ahead of a handler that is slow: 160 MiB was measured on loopback.
AHEAD_BYTES = 512 << 20
# What is left of requests that are done with, because balances are not exact.
LEFT_BYTES = 64 * 1024
DOUBTFUL_BYTES = 256 << 20
QUIET_SECONDS = 1.0
# What a client may need a second for, as for bodies of requests to the console.
SECOND_BYTES = 64 * 1024
# So many clients beyond the limit have so long until their first call.
NEW_CONNECTIONS = 256
NEW_SECONDS = 1.0
# A balance of a call whose connection has not been seen yet.
UNSEEN_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchLimits:
    connections: int = 1000
    #: A request has at most 4 MiB, and a client rarely has more than one on its way.
    request_bytes: int = 32 << 20
    input_bytes: int = 2 << 30
    #: The largest record batch that is accepted.
    batch_bytes: int = 64 << 20
    handshake_seconds: float = 10.0
    unfinished_seconds: float = 30.0


class Watch:
    """`balance` is for the threads of calls; the rest is done by a thread of its own."""

    def __init__(self, limits: WatchLimits) -> None:
        self._limits = limits
        # Up to twice the limit, a batch that is too large is refused with a sentence.
        self._allowance = WriteAllowance(2 * limits.batch_bytes, AHEAD_BYTES)
        #: What may be thrown away of a write that ends early.
        self.write_bytes = 2 * limits.batch_bytes + AHEAD_BYTES
        self._lock = threading.Lock()
        self._balances: dict[tuple[str, int], Balance] = {}
        self._known: dict[bytes, Balance] = {}
        self._stopping = threading.Event()
        self._running = False
        self._blind = False
        self._too_much = ServiceCounter(
            "flight_connections_too_large",
            "Flight clients that sent more at once than they may, and were disconnected.",
        )
        self._silent = ServiceCounter(
            "flight_connections_unfinished",
            "Flight clients that made no call, or did not finish one, and were disconnected.",
        )
        self._too_many = ServiceCounter(
            "flight_connections_refused", "Connections beyond flight.connections."
        )
        self.counters = (self._too_much, self._silent, self._too_many)

    def balance(self, peer: str) -> Balance:
        """The balance of a client, by the name that gRPC has for it."""
        address = address_of(peer)
        with self._lock:
            if not self._running:
                return Balance()
            return self._balances.setdefault(address, Balance())

    def start(self, port: Callable[[], int], fail: Callable[[str], None]) -> None:
        """`fail` is told when it ends by surprise."""
        try:
            kernel = Kernel()
            kernel.wires(port())
        except OSError as error:
            logger.warning(
                "this system does not tell what Flight clients have sent (%s): what they make the "
                "broker hold, and how many there are, has no limit; let nobody reach listen.flight "
                "whom you do not trust",
                error,
            )
            return
        self._running = True
        threading.Thread(
            target=self._run, args=(kernel, port, fail), name="flight-watch", daemon=True
        ).start()

    def stop(self) -> None:
        self._stopping.set()

    def _run(self, kernel: Kernel, port: Callable[[], int], fail: Callable[[str], None]) -> None:
        pause = REST_SECONDS
        try:
            while not self._stopping.wait(pause):
                pause = self._look_or_wait(kernel, port())
        except Exception as error:
            logger.exception("the connections of Flight cannot be watched any more")
            fail(f"its connections cannot be watched: {error}")
        finally:
            kernel.close()

    def _look_or_wait(self, kernel: Kernel, port: int) -> float:
        """Returns the pause until the next look."""
        began = time.monotonic()
        try:
            busy = self._look(kernel, port)
        except OSError as error:  # such as too many open files: better late than never
            if not self._blind:
                logger.error("the connections of Flight cannot be watched at present: %s", error)
            self._blind = True
            return MOST_SECONDS
        self._blind = False
        pause = BUSY_SECONDS if busy else REST_SECONDS
        return max(pause, min((time.monotonic() - began) * SHARE, MOST_SECONDS))

    def _look(self, kernel: Kernel, port: int) -> bool:
        """Returns whether much is going on."""
        with self._lock:
            claims = {balance: balance.claim() for balance in self._balances.values()}
        wires = kernel.wires(port)
        now = time.monotonic()
        balances = self._matched(wires, now)
        before = sum(balance.read for balance in balances)
        for balance, wire in zip(balances, wires, strict=True):
            balance.settle(claims.get(balance, 0.0), wire.read, wire.acknowledged, now)
        self._judge(balances, now)
        return sum(balance.read for balance in balances) - before > BUSY_BYTES

    def _matched(self, wires: list[Wire], now: float) -> list[Balance]:
        known = self._known
        self._known = {
            wire.identity: known.get(wire.identity) or self._opened(wire, now) for wire in wires
        }
        if gone := known.keys() - self._known.keys():
            self._forget({id(known[each]) for each in gone}, now)
        return [self._known[wire.identity] for wire in wires]

    def _opened(self, wire: Wire, now: float) -> Balance:
        with self._lock:
            balance = self._balances.get(wire.peer)
            if balance is None or balance.inode:  # that one was of another connection
                balance = self._balances[wire.peer] = Balance()
            balance.inode, balance.opened = wire.inode, now
            return balance

    def _forget(self, gone: set[int], now: float) -> None:
        with self._lock:
            self._balances = {
                address: balance
                for address, balance in self._balances.items()
                if id(balance) not in gone
                and (balance.inode or balance.calls or now - balance.used < UNSEEN_SECONDS)
            }

    # What has to be closed

    def _judge(self, balances: list[Balance], now: float) -> None:
        beyond = {balance: balance.beyond(self._allowance, now) for balance in balances}
        large = {
            balance: f"it has sent {_mebibytes(size)} that belong to no write, and "
            f"flight.request_bytes allows {_mebibytes(self._limits.request_bytes)}"
            for balance, size in beyond.items()
            if size > self._limits.request_bytes
        }
        # What was believed of strangers counts where they are all together.
        left = {
            balance: size + (0 if balance.let_in else balance.doubtful)
            for balance, size in beyond.items()
            if balance not in large
        }
        largest = self._over(
            left, self._limits.input_bytes // REQUESTS_SHARE, "requests, an eighth of "
        )
        held = {
            balance: balance.held
            for balance in balances
            if balance not in large and balance not in largest
        }
        largest |= self._over(held, self._limits.input_bytes, "what is on its way in, ")
        rest = [each for each in balances if each not in large and each not in largest]
        silent = {
            balance: why
            for balance in rest
            if (why := self._silence(balance, beyond[balance], now))
        }
        rest = [each for each in rest if each not in silent]
        uncalled = {balance: why for balance, why in silent.items() if not balance.called}
        unfinished = {balance: why for balance, why in silent.items() if balance.called}
        self._close(large, self._too_much, "flight.request_bytes")
        self._close(largest, self._too_much, "flight.input_bytes")
        self._close(uncalled, self._silent, "handshake_seconds")
        self._close(unfinished, self._silent, "unfinished_seconds")
        self._close(self._superfluous(rest, now), self._too_many, "flight.connections")

    def _over(self, sizes: Mapping[Balance, float], most: int, what: str) -> dict[Balance, str]:
        """The largest, until the rest is not too much."""
        total, found = sum(sizes.values()), {}
        for balance in sorted(sizes, key=lambda each: (each.let_in, -sizes[each])):
            if total <= most:
                break
            if sizes[balance] > LEFT_BYTES:
                total -= sizes[balance]
                found[balance] = f"all clients have {what}flight.input_bytes; it is the largest"
        return found

    def _silence(self, balance: Balance, beyond: float, now: float) -> str:
        """Why a connection that has no call will never have one. Empty: it may."""
        limits = self._limits
        if balance.calls or beyond <= LEFT_BYTES:
            balance.unfinished = now
        if balance.calls:
            return ""
        if not balance.called:
            seconds = limits.handshake_seconds + balance.read / SECOND_BYTES
            return "it has made no call" if now - balance.opened > seconds else ""
        if beyond > LEFT_BYTES:
            seconds = limits.unfinished_seconds + beyond / SECOND_BYTES
            return "it has not finished a request" if now - balance.unfinished > seconds else ""
        quiet = now - max(balance.used, balance.grown) > QUIET_SECONDS
        too_doubtful = balance.doubtful > DOUBTFUL_BYTES and quiet
        return "its calls have ended early again and again" if too_doubtful else ""

    def _superfluous(self, balances: list[Balance], now: float) -> dict[Balance, str]:
        # A client that has just come is given the time for its first call.
        new = [
            each
            for each in balances
            if not (each.calls or each.called) and now - each.opened < NEW_SECONDS
        ]
        new.sort(key=lambda each: each.opened)
        spared = set(new[-NEW_CONNECTIONS:])
        settled = [each for each in balances if each not in spared]
        many = len(settled) - self._limits.connections
        if many <= 0:
            return {}
        idle = [each for each in settled if not each.calls]
        busy = [each for each in settled if each.calls]
        idle.sort(key=lambda each: (each.let_in, each.used))
        busy.sort(key=lambda each: (each.let_in, -each.opened))
        why = "flight.connections allows no more, and it has been idle for the longest time"
        return dict.fromkeys([*idle, *busy][:many], why)

    def _close(self, balances: Mapping[Balance, str], counter: ServiceCounter, limit: str) -> None:
        if not balances:
            return
        done = hang_up_on({balance.inode for balance in balances})
        counter.count += len(done)
        OVER_LIMITS[limit] += len(done)
        closed = {balance: why for balance, why in balances.items() if balance.inode in done}
        _tell(closed, self._names(closed))

    def _names(self, balances: Iterable[Balance]) -> dict[Balance, str]:
        wanted = set(balances)
        with self._lock:
            found = self._balances.items()
            return {each: f"{host}:{port}" for (host, port), each in found if each in wanted}


def _tell(closed: Mapping[Balance, str], names: Mapping[Balance, str]) -> None:
    """One line, however many it was."""
    if not closed:
        return
    balance, why = next(iter(closed.items()))
    others = f" (and {len(closed) - 1} more)" if len(closed) > 1 else ""
    logger.warning(
        "the connection of a Flight client at %s%s is closed: %s",
        names.get(balance, "an unknown address"),
        others,
        why,
    )


def _mebibytes(size: float) -> str:
    return f"{size / (1 << 20):.0f} MiB"


def address_of(peer: str) -> tuple[str, int]:
    """`ipv4:127.0.0.1:5000` or `ipv6:[::1]:5000`, as gRPC has it."""
    host, _, port = peer.partition(":")[2].rpartition(":")
    host = host.strip("[]").partition("%")[0].removeprefix("::ffff:")
    return host, int(port) if port.isdigit() else 0
