"""Whether what is stored agrees with what clients know.

- Every acknowledged message is there once, whole; nothing is there that nobody has sent.
- A batch of Flight is there as a whole or not at all, and as a whole if its commit was answered.
- A durable subscriber, or a queue, passes over no message that was not received.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from torture.everyone.accounts import Accounts, key_of

#: Topics of clients; the others are the broker's own.
CLIENTS = ("everyone/", "bmtp/")


@dataclass
class Findings:
    """What is wrong, and how much was looked at."""

    lost: set[bytes] = field(default_factory=set)
    twice: set[bytes] = field(default_factory=set)
    foreign: list[bytes] = field(default_factory=list)
    other: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not (self.lost or self.twice or self.foreign or self.other)

    def __str__(self) -> str:
        said = [*self.other]
        if self.lost:
            said.append(f"acknowledged and lost: {sorted(self.lost)[:5]}")
        if self.twice:
            said.append(f"twice: {sorted(self.twice)[:5]}")
        if self.foreign:
            said.append(f"not as anyone has sent it: {self.foreign[:2]}")
        return "; ".join(said)


class Check:
    """Of one log, at one moment: what was known before it counts."""

    def __init__(
        self,
        accounts: Accounts,
        moment: int,
        stored: Iterable[tuple[int, str, bytes]],
        gone: Iterable[bytes] = (),
    ) -> None:
        """`gone`: what retention has removed by then."""
        self.accounts, self.moment = accounts, moment
        self.findings = Findings()
        self.offsets: dict[bytes, int] = {}
        seen: Counter[bytes] = Counter()
        for offset, topic, payload in stored:
            if topic.startswith(CLIENTS):
                key = key_of(payload)
                if key is None or key not in accounts.sent:
                    self.findings.foreign.append(payload[:100])
                else:
                    seen[key] += 1
                    self.offsets[key] = offset
        self.gone = set(gone)
        self.findings.twice |= {key for key, times in seen.items() if times > 1}
        known = {key for key, at in accounts.acknowledged.items() if at <= moment}
        self.findings.lost |= known - seen.keys() - self.gone
        self._check_batches(seen.keys())

    def _check_batches(self, there: Iterable[bytes]) -> None:
        found = set(there)
        for batch in self.accounts.batches:
            keys = set(batch.keys)
            if keys & found and keys - found - self.gone:
                self.findings.other.append(
                    f"batch {batch.number} of {batch.query} is there in part"
                )

    def check_position(self, name: str, position: int) -> None:
        """Of a durable subscriber: it has received all before its position."""
        received = self.accounts.received[name]
        self._check_passed(name, [k for k, o in self.offsets.items() if o < position], received)

    def check_queue(
        self, name: str, position: int, left: Sequence[int], topics: tuple[str, ...] = ()
    ) -> None:
        """Of a queue: what lies before its position, and is not to be delivered again, was received
        by a consumer."""
        since = self.accounts.subscribed.get(name)
        if since is None or since > self.moment:
            return
        passed = [
            key
            for key, offset in self.offsets.items()
            if offset < position
            and offset not in set(left)
            and self.accounts.acknowledged.get(key, -1) > since
            and key.startswith(tuple(each.encode() for each in topics))
        ]
        self._check_passed(name, passed, self.accounts.received[name])

    def _check_passed(
        self, name: str, passed: Sequence[bytes], received: Mapping[bytes, int]
    ) -> None:
        missed = [key for key in passed if received.get(key, self.moment + 1) > self.moment]
        if missed:
            self.findings.other.append(
                f"{name} would miss {len(missed)} messages, such as {missed[:3]}"
            )
