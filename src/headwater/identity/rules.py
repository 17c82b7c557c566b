"""The rules that say what users, apps, roles and anonymous clients may do.

    access.json    {"rules": [{"who": "role:devices", "may": ["publish"], "topics": "sensors/*"}]}

Before the file is there, `DEFAULT` holds: whoever is let in may do everything, except to read what
the broker itself writes. The first change writes these rules down, so that they can be taken back
as well. What operators may do is always allowed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.actions import (
    ACTIONS,
    ANONYMOUS,
    APP_ROLE,
    AUDIT,
    HISTORY,
    PUBLISH,
    SUBSCRIBE,
    VERBS,
)
from headwater.errors import Code, Refusal
from headwater.identity.kept_file import KeptFile
from headwater.rights import EVERY_TOPIC, Principal, Rights, Rule, pattern_of
from headwater.units import is_client_id

FILE = "access.json"
EVERYTHING = frozenset(ACTIONS)
READING = frozenset((SUBSCRIBE, HISTORY))

#: What holds whatever the file says.
FIXED = (
    Rule("role:operator", EVERYTHING, "*"),
    *(Rule("role:operator", READING, each) for each in EVERY_TOPIC if each != "*"),
)
DEFAULT = (
    Rule("role:reader", READING, "*"),
    Rule("role:client", EVERYTHING, "*"),
    Rule(f"role:{APP_ROLE}", EVERYTHING, "*"),
    Rule(ANONYMOUS, EVERYTHING, "*"),
)

#: By whom they are for and their topics: what is allowed.
Table = dict[tuple[str, str], frozenset[str]]


class Rules:
    """`path` is that of access.json. It is created by the first change."""

    def __init__(self, path: Path) -> None:
        self._file: KeptFile[Table] = KeptFile(
            path, read=_read, write=_write, nothing=lambda: _table(DEFAULT)
        )

    @property
    def version(self) -> tuple[int, ...]:
        """Changes when the rules do."""
        return self._file.version

    def all(self) -> tuple[Rule, ...]:
        """Those that hold always, then those of the file."""
        return FIXED + tuple(_rules(self._file.load()))

    def allow(self, who: str, actions: Iterable[str], topics: str) -> None:
        who, wanted = check_who(who), check_actions(actions)
        if pattern_of(topics).levels[:1] == (AUDIT,) and PUBLISH in wanted:
            raise Refusal(Code.NOT_PERMITTED, f"only the broker publishes to {AUDIT}")
        with self._file.changing() as table:
            table[who, topics] = table.get((who, topics), frozenset()) | wanted

    def revoke(self, who: str, actions: Iterable[str], topics: str) -> None:
        """Take back what a rule allows. Raises Refusal if no rule of the file allows it."""
        who, unwanted = check_who(who), check_actions(actions)
        with self._file.changing() as table:
            allowed = table.get((who, topics), frozenset())
            if not allowed & unwanted:
                raise Refusal(
                    Code.NOT_FOUND,
                    f"no rule allows {who} to {_list(unwanted)} {topics}; "
                    "'headwater access list' shows the rules",
                )
            if allowed - unwanted:
                table[who, topics] = allowed - unwanted
            else:
                del table[who, topics]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why something is allowed, or not."""

    allowed: bool
    sentence: str


def explain(principal: Principal, rules: Sequence[Rule], action: str, topic: str) -> Explanation:
    (action,) = check_actions((action,))
    grant = Rights(principal, rules).of(action).grant_for(topic)
    if grant is not None:
        return Explanation(
            True,
            f"{principal} may {VERBS[action]} {topic}: "
            f"{grant.who} may, on topics that match {grant.pattern.text}",
        )
    mine = [rule for rule in rules if rule.who in principal.subjects and action in rule.actions]
    patterns = ", ".join(f"{rule.topics} ({rule.who})" for rule in mine)
    names = " or ".join(principal.subjects)
    why = (
        f"the rules that allow it are for {patterns}"
        if mine
        else f"no rule allows {names} to {VERBS[action]} any topic"
    )
    return Explanation(False, f"{principal} may not {VERBS[action]} {topic}: {why}")


def check_who(who: str) -> str:
    kind, _, name = who.partition(":")
    if who == ANONYMOUS or (kind in ("user", "app", "role") and is_client_id(name)):
        return who
    raise Refusal(
        Code.MALFORMED,
        f'a rule is for "user:NAME", "app:NAME", "role:NAME" or "{ANONYMOUS}", not "{who}"',
    )


def check_actions(actions: Iterable[str]) -> frozenset[str]:
    wanted = frozenset(actions)
    if not wanted or not wanted <= EVERYTHING:
        wrong = ", ".join(sorted(wanted - EVERYTHING)) or "nothing"
        raise Refusal(Code.MALFORMED, f"there are {_list(EVERYTHING)}, and not {wrong}")
    return wanted


def _list(actions: Iterable[str]) -> str:
    return ", ".join(each for each in ACTIONS if each in actions)


def _table(rules: Iterable[Rule]) -> Table:
    return {(rule.who, rule.topics): rule.actions for rule in rules}


def _rules(table: Table) -> list[Rule]:
    return [Rule(who, actions, topics) for (who, topics), actions in table.items()]


def _read(content: Any) -> Table:
    table: Table = {}
    for each in content["rules"]:
        pattern_of(each["topics"])
        table[check_who(each["who"]), each["topics"]] = check_actions(each["may"])
    return table


def _write(table: Table) -> dict[str, Any]:
    return {
        "rules": [
            {
                "who": rule.who,
                "may": [each for each in ACTIONS if each in rule.actions],
                "topics": rule.topics,
            }
            for rule in _rules(table)
        ]
    }
