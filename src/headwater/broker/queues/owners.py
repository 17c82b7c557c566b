"""Whom queues belong to.

A queue belongs to whom the rule is for that allowed it to be made: a user, an app, or everyone of a
role. Others cannot consume it, even if they may consume queues of the same topics: they would take
messages away from those who wait for them. What anonymous clients have made belongs to nobody, and
so does what the configuration declares.
"""

from collections import Counter

from headwater.actions import ANONYMOUS, QUEUES
from headwater.broker.quotas import OverQuota
from headwater.errors import Code, Refusal
from headwater.log.engine import Notes
from headwater.queue_spec import QueueSpec
from headwater.rights import Rights

# Beside the states of queues; what begins with "$" is no queue.
_PREFIX = "$owner/"


class QueueOwners:
    def __init__(self, notes: Notes, most: int | None = None) -> None:
        """`most`: so many queues an owner may have."""
        self._notes = notes
        self._most = most
        self._counts: Counter[str] = Counter(
            (notes.load_queue(name) or b"").decode(errors="replace")
            for name in notes.queue_names(_PREFIX)
        )
        self._new: dict[str, str] = {}  # since the broker started

    def check(self, spec: QueueSpec, rights: Rights) -> None:
        """Raise Refusal if it is not theirs to consume."""
        if not any(rights.queues.may_some(each) for each in spec.filters):
            raise rights.refusal(QUEUES, " ".join(each.text for each in spec.filters))
        owner = self.of(spec.name)
        if owner and owner not in rights.principal.subjects and rights.principal.kind != "local":
            raise Refusal(Code.NOT_PERMITTED, f"the queue {spec.name} belongs to {owner}")
        if self._most is not None and not owner and self._notes.load_queue(spec.name) is None:
            maker = self._owner(spec, rights)
            if maker and self._counts[maker] >= self._most:
                sentence = f"{maker} may have {self._most} queues"
                raise OverQuota(Code.NO_SPACE, "queues_per_user", sentence)

    def made(self, spec: QueueSpec, rights: Rights) -> None:
        """A queue is about to be made. It belongs to whoever does."""
        owner = self._owner(spec, rights)
        if owner and self._notes.load_queue(spec.name) is None:
            self._new[spec.name] = owner
            self._counts[owner] += 1
            self._notes.save_queue(_PREFIX + spec.name, owner.encode)

    def of(self, name: str) -> str:
        """Whom a queue belongs to; empty: nobody."""
        if (owner := self._new.get(name)) is not None:
            return owner
        kept = self._notes.load_queue(_PREFIX + name)
        return "" if kept is None else kept.decode(errors="replace")

    def forget(self, name: str) -> None:
        if owner := self.of(name):
            self._new.pop(name, None)
            self._counts[owner] -= 1
            self._notes.delete_queue(_PREFIX + name)

    def _owner(self, spec: QueueSpec, rights: Rights) -> str:
        for each in spec.filters:
            grant = rights.queues.grant_for(each.text)
            if grant is not None:
                return "" if grant.who in (ANONYMOUS, "local") else grant.who
        return str(rights.principal)
