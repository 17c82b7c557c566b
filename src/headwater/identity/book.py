"""All that can be done to users and rules, by name: for commands, the console and the broker.

A running broker does it, so that it counts at once and is on record; without one, a command does
the same to the files.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from headwater.actions import ACTIONS, ANONYMOUS
from headwater.errors import Code, Refusal
from headwater.identity.apps import FILE as APPS_FILE
from headwater.identity.apps import Apps
from headwater.identity.rules import FILE as RULES_FILE
from headwater.identity.rules import Rules, explain
from headwater.identity.users import FILE as USERS_FILE
from headwater.identity.users import User, Users
from headwater.rights import Principal


class AccessBook:
    """`roles_of_apps` knows the apps that the broker has from its configuration."""

    def __init__(self, data: Path, roles_of_apps: Callable[[], dict[str, str]] = dict) -> None:
        self.users = Users(data / USERS_FILE)
        self.rules = Rules(data / RULES_FILE)
        self._apps = Apps(data / APPS_FILE)
        self._roles_of_apps = roles_of_apps

    @property
    def actions(self) -> dict[str, Callable[..., Any]]:
        """By the name that commands have for it."""
        return {
            "user.add": self.add_user,
            "user.change": self.change_user,
            "user.remove": self.remove_user,
            "user.list": self.list_users,
            "user.token": self.add_token,
            "user.revoke": self.remove_tokens,
            "access.list": self.list_rules,
            "access.allow": self.allow,
            "access.revoke": self.revoke,
            "access.explain": self.explain,
        }

    #: Those that change nothing.
    READING = frozenset(("user.list", "access.list", "access.explain"))

    def add_user(self, name: str, role: str, password: str | None = None) -> dict[str, Any]:
        return _summary(self.users.add(name, role, password))

    def change_user(
        self, name: str, role: str | None = None, password: str | None = None
    ) -> dict[str, Any]:
        return _summary(self.users.change(name, role=role, password=password))

    def remove_user(self, name: str) -> None:
        self.users.remove(name)

    def list_users(self) -> list[dict[str, Any]]:
        return [_summary(each) for each in self.users.all().values()]

    def add_token(self, name: str) -> dict[str, Any]:
        return {"name": name, "token": self.users.add_token(name)}

    def remove_tokens(self, name: str) -> dict[str, Any]:
        return {"name": name, "removed": self.users.remove_tokens(name)}

    def list_rules(self) -> list[dict[str, Any]]:
        return [
            {
                "who": rule.who,
                "may": [each for each in ACTIONS if each in rule.actions],
                "topics": rule.topics,
            }
            for rule in self.rules.all()
        ]

    def allow(self, who: str, may: list[str], topics: str) -> None:
        self.rules.allow(self._subject(who), may, topics)

    def revoke(self, who: str, may: list[str], topics: str) -> None:
        self.rules.revoke(self._subject(who), may, topics)

    def explain(self, who: str, action: str, topic: str) -> dict[str, Any]:
        found = explain(self._principal(who), self.rules.all(), action, topic)
        return {"allowed": found.allowed, "why": found.sentence}

    def _subject(self, who: str) -> str:
        """A bare name is that of a user or an app."""
        if who == ANONYMOUS or ":" in who:
            return who
        return str(self._principal(who))

    def _principal(self, who: str) -> Principal:
        if who == ANONYMOUS:
            return Principal(ANONYMOUS)
        kind, colon, name = who.partition(":")
        name = name if colon else who
        users = self.users.all()
        if kind == "role" and colon:
            return Principal("role", name)
        if name in users and (kind == "user" or not colon):
            return Principal("user", name, users[name].role)
        roles = {each.client_id: each.role for each in self._apps.list()} | self._roles_of_apps()
        if name in roles and (kind == "app" or not colon):
            return Principal("app", name, roles[name])
        raise Refusal(
            Code.NOT_FOUND,
            f'there is no user and no app "{who}"; say user:NAME, app:NAME, role:NAME or '
            f"{ANONYMOUS}",
        )


def _summary(user: User) -> dict[str, Any]:
    """A user without password and tokens."""
    return {
        "name": user.name,
        "role": user.role,
        "created": user.created,
        "tokens": len(user.tokens),
        "password": user.password is not None,
    }
