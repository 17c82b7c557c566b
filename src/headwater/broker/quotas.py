"""What one user may use of the broker, and how fast a client may publish.

    pace      messages and bytes a second, of a connection and of a user. Who is faster is not read
              from for a while: nothing is dropped.
    account   connections, topics, queues and stored bytes of a user. Who wants more is refused.

Anonymous clients have no account. They are bounded by connection and by address.

Stored bytes are counted as they come and forgotten as retention takes them, in buckets of offsets.
They and the topics are noted within a second, so a restart knows them; a crash may forget a moment.

All of this is used in the event loop, except `Share`.
"""

import struct
import time
from collections import deque
from dataclasses import dataclass
from hashlib import blake2b

from headwater.actions import ANONYMOUS
from headwater.errors import Code, Refusal
from headwater.log.engine import Engine
from headwater.message import Run
from headwater.rights import LOCAL, Principal, Rights

# A publisher may be faster than its rate for so long, if it was slower before.
BURST_SECONDS = 1.0
# So many buckets the stored bytes of a user are counted in.
BUCKETS = 256
# Whether topics of a user are gone from the log is looked at so often, if it has too many.
LOOK_SECONDS = 60.0

_HASH_BYTES = 8
_BUCKET = struct.Struct(">QQ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """The limits; None: there is none."""

    subscriptions: int = 100_000
    patterns: int = 100_000
    connections_per_user: int | None = None
    topics_per_user: int | None = None
    queues_per_user: int | None = None
    stored_bytes_per_user: int | None = None
    messages_per_second: float | None = None
    bytes_per_second: float | None = None
    messages_per_second_per_user: float | None = None
    bytes_per_second_per_user: float | None = None

    @property
    def has_rates(self) -> bool:
        rates = (
            *(self.messages_per_second, self.messages_per_second_per_user),
            *(self.bytes_per_second, self.bytes_per_second_per_user),
        )
        return any(rate is not None for rate in rates)


class Share:
    """What runs that are stored together take of an account. There can be very many of them, so
    any thread may make this."""

    __slots__ = ("_has_topics", "size", "topics")

    def __init__(self, quotas: Quotas) -> None:
        self._has_topics = quotas.topics_per_user is not None
        self.size = 0
        self.topics: set[bytes] = set()  # none if nobody asks for them

    def add(self, run: Run) -> None:
        self.size += run.size
        if self._has_topics:
            self.topics.add(_hash(run.topic))


class Bucket:
    """So much a second. What was taken beyond it is owed, and takes time to be paid."""

    __slots__ = ("_at", "_level", "_rate")

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._level = rate * BURST_SECONDS
        self._at = now

    def take(self, amount: float, now: float) -> float:
        """How many seconds to wait from now on."""
        full = self._rate * BURST_SECONDS
        self._level = min(full, self._level + (now - self._at) * self._rate) - amount
        self._at = now
        return max(-self._level / self._rate, 0.0)


class Pace:
    """How fast one connection may publish: each of its rates, and those of its user."""

    __slots__ = ("_bytes", "_messages")

    def __init__(self, messages: list[Bucket], size: list[Bucket]) -> None:
        self._messages = messages
        self._bytes = size

    def spent(self, messages: int, size: int) -> float:
        """How many seconds to wait after publishing so much."""
        now, wait = time.monotonic(), 0.0
        for bucket in self._messages:
            wait = max(wait, bucket.take(messages, now))
        for bucket in self._bytes:
            wait = max(wait, bucket.take(size, now))
        return wait


class Account:
    """What one user has."""

    def __init__(self, who: Principal, quotas: Quotas, engine: Engine) -> None:
        self._who = who
        self._quotas = quotas
        self._engine = engine
        self.connections = 0
        #: What is stored counts.
        self.is_limited = (quotas.stored_bytes_per_user, quotas.topics_per_user) != (None, None)
        now = time.monotonic()
        self.messages = _bucket(quotas.messages_per_second_per_user, now)
        self.bytes = _bucket(quotas.bytes_per_second_per_user, now)
        notes = engine.notes
        self._topics = _split(notes.load_queue(self._name("topics")) or b"")
        self._stored: deque[tuple[int, int]] = deque(  # the end of a bucket, and its bytes
            _BUCKET.iter_unpack(notes.load_queue(self._name("stored")) or b"")
        )
        self.stored = sum(size for _, size in self._stored)
        self._looked_at = -LOOK_SECONDS
        self._end = 0  # of the last message

    def share(self, run: Run) -> Share:
        share = Share(self._quotas)
        share.add(run)
        return share

    def check(self, share: Share) -> None:
        """Raise Refusal if it may not store this."""
        most = self._quotas.stored_bytes_per_user
        if most is not None and self._is_too_much(share.size, most):
            raise _refusal(self._who, "stored_bytes_per_user", f"{most} bytes stored")
        most = self._quotas.topics_per_user
        if most is not None and self._are_too_many(share.topics, most):
            self._forget_topics()
            if self._are_too_many(share.topics, most):
                raise _refusal(self._who, "topics_per_user", f"{most} topics")

    def published(self, share: Share, end: int) -> None:
        self._end = end
        if self._quotas.stored_bytes_per_user is not None:
            self._store(share.size, end, self._quotas.stored_bytes_per_user)
        if not share.topics <= self._topics:
            self._topics |= share.topics
            self._engine.notes.save_queue(self._name("topics"), lambda: b"".join(self._topics))

    def rewound(self, end: int) -> None:
        """What came from `end` on was not stored."""
        self._end = min(self._end, end)
        if self._stored and self._stored[-1][0] > end:
            while self._stored and self._stored[-1][0] > end:
                self.stored -= self._stored.pop()[1]
            self._save_stored()

    def _is_too_much(self, size: int, most: int) -> bool:
        start = self._engine.start
        while self._stored and self._stored[0][0] <= start:  # retention has taken them
            self.stored -= self._stored.popleft()[1]
        return self.stored + size > most

    def _are_too_many(self, topics: set[bytes], most: int) -> bool:
        if len(topics) > max(most, len(self._topics)):  # which of them are new is all the same
            return True
        new = len(topics - self._topics)
        return new > 0 and len(self._topics) + new > most

    def _store(self, size: int, end: int, most: int) -> None:
        self.stored += size
        if self._stored and self._stored[-1][1] < most // BUCKETS:
            size += self._stored.pop()[1]
        self._stored.append((end, size))
        self._save_stored()

    def _save_stored(self) -> None:
        self._engine.notes.save_queue(
            self._name("stored"), lambda: b"".join([_BUCKET.pack(*each) for each in self._stored])
        )

    def _forget_topics(self) -> None:
        """Those that the log has no message of any more are not this user's."""
        settled = self._end <= self._engine.watermark  # the log knows what is durable
        if settled and time.monotonic() - self._looked_at >= LOOK_SECONDS:
            self._looked_at = time.monotonic()
            self._topics &= {_hash(topic) for topic in self._engine.topics()}

    def _name(self, what: str) -> str:
        return f"${what}/{self._who}"


class Accounts:
    """Of all users."""

    def __init__(self, quotas: Quotas, engine: Engine) -> None:
        self.quotas = quotas
        self._engine = engine
        self._accounts: dict[tuple[str, str], Account] = {}

    def of(self, rights: Rights) -> Account | None:
        """None: whoever has these rights has no account."""
        who = rights.principal
        if who.kind in (ANONYMOUS, LOCAL, "nobody"):
            return None
        account = self._accounts.get((who.kind, who.name))
        if account is None:
            account = Account(who, self.quotas, self._engine)
            self._accounts[who.kind, who.name] = account
        return account

    def joined(self, account: Account | None, who: Principal) -> None:
        """A connection of a user comes. Raises Refusal."""
        most = self.quotas.connections_per_user
        if account is None:
            return
        if most is not None and account.connections >= most:
            raise _refusal(who, "connections_per_user", f"{most} connections")
        account.connections += 1

    def left(self, account: Account | None) -> None:
        if account is not None:
            account.connections -= 1

    def pace(self, account: Account | None) -> Pace | None:
        """How fast a new connection may publish. None: as fast as it can."""
        now = time.monotonic()
        messages = [_bucket(self.quotas.messages_per_second, now)]
        size = [_bucket(self.quotas.bytes_per_second, now)]
        if account is not None:
            messages.append(account.messages)
            size.append(account.bytes)
        kept = [each for each in messages if each], [each for each in size if each]
        return Pace(*kept) if any(kept) else None

    def rewound(self, end: int) -> None:
        for account in self._accounts.values():
            account.rewound(end)


class OverQuota(Refusal):
    """A limit of the configuration, by its name in the table `limits`."""

    def __init__(self, code: Code, limit: str, sentence: str) -> None:
        super().__init__(code, f"{sentence} (limits.{limit})", limit=limit)


def _refusal(who: Principal, limit: str, what: str) -> OverQuota:
    return OverQuota(Code.NO_SPACE, limit, f"{who} may have {what}")


def _bucket(rate: float | None, now: float) -> Bucket | None:
    return None if rate is None else Bucket(rate, now)


def _hash(topic: str) -> bytes:
    return blake2b(topic.encode(), digest_size=_HASH_BYTES).digest()


def _split(content: bytes) -> set[bytes]:
    return {content[at : at + _HASH_BYTES] for at in range(0, len(content), _HASH_BYTES)}
