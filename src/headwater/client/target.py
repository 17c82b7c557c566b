"""A URL that says where a broker is and how to speak to it."""

import ssl
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from headwater.client.trust import Trust
from headwater.errors import HeadwaterError
from headwater.registry import REGISTRY, SCHEMES


@dataclass(frozen=True, slots=True)
class Target:
    """scheme://[user[:password]@]host[:port][/topic or pattern]

    The scheme is the name of a protocol, with an "s" behind it for TLS.
    Whatever follows the slash is the topic or pattern as it stands: nothing in it is
    percent-decoded, so that patterns can be written down without escapes.
    """

    #: The name of the protocol.
    scheme: str
    host: str
    port: int | None
    user: str
    password: str
    topic: str
    #: Inside TLS.
    secure: bool = False
    trust: Trust = field(default_factory=Trust)

    @classmethod
    def parse(cls, url: str) -> "Target":
        scheme, separator, rest = url.partition("://")
        authority, _, topic = rest.partition("/")
        if not separator or scheme not in SCHEMES:
            plain = ", ".join(f"{name}://" for name in REGISTRY)
            example = f"{next(iter(REGISTRY))}s://"
            raise HeadwaterError(
                f"a URL begins with one of {plain}, or for TLS with an s behind that, such as "
                f"{example}, not: {url}"
            )
        try:
            parts = urlsplit(f"//{authority}")
            port = parts.port
        except ValueError:
            raise HeadwaterError(f"the URL has no valid host and port: {url}") from None
        if not parts.hostname:
            raise HeadwaterError(f"the URL names no host: {url}")
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        protocol, secure = SCHEMES[scheme]
        trust = Trust.from_environment() if secure else Trust()
        return cls(
            protocol.name, parts.hostname, port, user, password, topic, secure=secure, trust=trust
        )

    @property
    def address(self) -> tuple[str, int]:
        """The host, and the port or the usual one of the protocol."""
        return self.host, self.port or REGISTRY[self.scheme].port

    @property
    def tls(self) -> ssl.SSLContext | None:
        """What a client needs inside TLS."""
        return self.trust.context() if self.secure else None

    def check_no_user(self) -> None:
        """Of a protocol that has no users."""
        if self.user:
            title = REGISTRY[self.scheme].title
            raise HeadwaterError(f"{title} has no users: leave the name out of the URL")
