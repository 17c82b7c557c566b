"""What a client may do: on which topics, asked once for each topic and remembered.

    principal   who it is: a user, an app, or someone who did not say
    rule        whom it is for, what they may do, and on which topics
    rights      what follows from the rules for one principal; all its connections share them

There are only rules that allow something. A pattern of topics has levels as in BPSP: `+` is one
level, a last `*` one or more, and `{user}` stands for the name of whoever asks. What the broker
itself writes (`RESERVED`) is matched only by a pattern that names it.

Rules may change at any time, and the rights that follow from them change with them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headwater.actions import ACTIONS, HISTORY, PUBLISH, SUBSCRIBE, VERBS
from headwater.errors import Code, Refusal
from headwater.filters import RESERVED, Filter, LevelFilter

USER = "{user}"

# So many topics are remembered for each principal and action.
MOST_KNOWN = 65_536


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a client is."""

    kind: str  # "user", "app" or "anonymous"
    name: str = ""
    role: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else self.kind

    @property
    def subjects(self) -> tuple[str, ...]:
        """What rules may call it."""
        return (str(self), f"role:{self.role}") if self.role else (str(self),)


@dataclass(frozen=True, slots=True)
class Rule:
    who: str  # "user:alice", "app:shop", "role:devices" or "anonymous"
    actions: frozenset[str]
    topics: str


@dataclass(frozen=True, slots=True)
class Grant:
    """What a rule allows to one principal: a pattern, and whom the rule is for."""

    pattern: LevelFilter
    who: str

    def matches(self, topic: str) -> bool:
        return self.pattern.matches(topic) and (
            topic.partition("/")[0] not in RESERVED or self._names_reserved()
        )

    def _names_reserved(self) -> bool:
        levels = self.pattern.levels
        return bool(levels) and levels[0] in RESERVED


def pattern_of(topics: str, name: str = "") -> LevelFilter:
    """A rule's pattern for the principal of this name. Raises Refusal."""
    return LevelFilter.parse(topics.replace(USER, name) if name else topics)


def grant_among(grants: Sequence[Grant], topic: str) -> Grant | None:
    for grant in grants:
        if grant.matches(topic):
            return grant
    return None


class Allowed:
    """On which topics one principal may do one thing."""

    __slots__ = ("_also", "_grants", "_known")

    def __init__(self, grants: Iterable[Grant] = (), also: "Allowed | None" = None) -> None:
        self._grants = tuple(grants)
        self._also = also  # what is allowed here must be allowed there, too
        self._known: dict[str, bool] = {}

    def may(self, topic: str) -> bool:
        """Any thread may ask."""
        remembered = self._known  # whoever changes the rules puts another one in its place
        known = remembered.get(topic)
        if known is None:
            if len(remembered) >= MOST_KNOWN:
                remembered.clear()
            known = remembered[topic] = self.grant_for(topic) is not None and (
                self._also is None or self._also.may(topic)
            )
        return known

    def may_some(self, wanted: Filter) -> bool:
        """Whether a subscription with this filter could ever get a message."""
        if not isinstance(wanted, LevelFilter):
            # What a pattern matches nobody can tell; what it gets is asked for each topic.
            return bool(self._grants) and (self._also is None or self._also.may_some(wanted))
        if not wanted.rest and None not in wanted.levels:
            return self.may(wanted.text)
        overlaps = any(_overlap(grant.pattern, wanted) for grant in self._grants)
        return overlaps and (self._also is None or self._also.may_some(wanted))

    def grant_for(self, topic: str) -> Grant | None:
        """Why it is allowed."""
        return grant_among(self._grants, topic)

    @property
    def grants(self) -> tuple[Grant, ...]:
        """Those of now: after a change there are others."""
        return self._grants

    def change(self, grants: Iterable[Grant]) -> None:
        self._grants = tuple(grants)
        self.forget()

    def forget(self) -> None:
        self._known = {}


class Rights:
    """What one principal may do."""

    __slots__ = ("ended", "history", "principal", "publish", "queues", "replay", "subscribe")

    def __init__(self, principal: Principal, rules: Sequence[Rule] = ()) -> None:
        self.principal = principal
        #: Whoever had these is not known any more.
        self.ended = False
        self.publish = Allowed()
        self.subscribe = Allowed()
        self.history = Allowed()
        self.queues = Allowed()
        #: Of a durable subscription, which gets what comes and what there was.
        self.replay = Allowed(also=self.history)
        self.change(rules)

    def change(self, rules: Sequence[Rule]) -> None:
        """From now on, these rules hold."""
        mine = [rule for rule in rules if rule.who in self.principal.subjects]
        for action in ACTIONS:
            grants = [
                Grant(pattern_of(rule.topics, self.principal.name), rule.who)
                for rule in mine
                if action in rule.actions
            ]
            self.of(action).change(grants)
            if action == SUBSCRIBE:
                self.replay.change(grants)
        self.replay.forget()

    def end(self) -> None:
        """From now on, nothing is allowed, for there is no such principal any more."""
        self.ended = True  # first: any thread that finds something forbidden can tell why
        self.change(())

    def check_known(self) -> None:
        """Raise Refusal if they have ended. Any thread may ask."""
        if self.ended:
            raise self.farewell()

    def of(self, action: str) -> Allowed:
        if action == PUBLISH:
            return self.publish
        if action == SUBSCRIBE:
            return self.subscribe
        return self.history if action == HISTORY else self.queues

    def refusal(self, action: str, topic: str) -> Refusal:
        """Tells a client that something is not allowed."""
        if self.principal is NOBODY:
            return Refusal(Code.NOT_PERMITTED, WHO)
        if self.ended:
            return self.farewell()
        return Refusal(Code.NOT_PERMITTED, f"{self.principal} may not {VERBS[action]} {topic}")

    def farewell(self) -> Refusal:
        """Tells a client that it is nobody's any more."""
        return Refusal(Code.NOT_PERMITTED, f"{self.principal} is not known any more")


WHO = "this listener is for clients that say who they are: log in, or come with a certificate"
#: The owner of the broker, and what needs no permission.
LOCAL = "local"
#: Those who did not say who they are, where they have to.
NOBODY = Principal("nobody")


def everything() -> Rights:
    """For whoever needs no permission: commands of the owner, and tests of other things."""
    principal = Principal(LOCAL)
    return Rights(principal, [Rule(LOCAL, frozenset(ACTIONS), each) for each in EVERY_TOPIC])


#: Patterns that match all topics there are.
EVERY_TOPIC = ("*", *(f"{each}/*" for each in sorted(RESERVED)), *sorted(RESERVED))


def _overlap(one: LevelFilter, other: LevelFilter) -> bool:
    """Whether some topic matches both."""
    for first, second in zip(one.levels, other.levels, strict=False):
        if first is not None and second is not None and first != second:
            return False
    shorter, longer = sorted((one, other), key=lambda each: len(each.levels))
    if len(shorter.levels) == len(longer.levels):
        return one.rest == other.rest
    return shorter.rest
