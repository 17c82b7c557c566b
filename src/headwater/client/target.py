"""A URL that says where a broker is and how to speak to it."""

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from headwater.errors import HeadwaterError
from headwater.registry import REGISTRY


@dataclass(frozen=True, slots=True)
class Target:
    """scheme://[user[:password]@]host[:port][/topic or pattern]

    Whatever follows the slash is the topic or pattern as it stands: nothing in it is
    percent-decoded, so that patterns can be written down without escapes.
    """

    scheme: str
    host: str
    port: int | None
    user: str
    password: str
    topic: str

    @classmethod
    def parse(cls, url: str) -> "Target":
        scheme, separator, rest = url.partition("://")
        authority, _, topic = rest.partition("/")
        if not separator or scheme not in REGISTRY:
            schemes = ", ".join(f"{scheme}://" for scheme in REGISTRY)
            raise HeadwaterError(f"a URL begins with one of {schemes}, not: {url}")
        try:
            parts = urlsplit(f"//{authority}")
            port = parts.port
        except ValueError:
            raise HeadwaterError(f"the URL has no valid host and port: {url}") from None
        if not parts.hostname:
            raise HeadwaterError(f"the URL names no host: {url}")
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        return cls(scheme, parts.hostname, port, user, password, topic)

    @property
    def address(self) -> tuple[str, int]:
        """The host, and the port or the usual one of the protocol."""
        return self.host, self.port or REGISTRY[self.scheme].port

    def check_no_user(self) -> None:
        """Of a protocol that has no users."""
        if self.user:
            title = REGISTRY[self.scheme].title
            raise HeadwaterError(f"{title} has no users: leave the name out of the URL")
