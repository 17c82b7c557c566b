"""A listener's certificate and key, and whose certificates it trusts: as files, and in use."""

import logging
import os
import ssl
import time
from dataclasses import dataclass
from pathlib import Path

from headwater.errors import ConfigError
from headwater.tls.certificates import expiry_of
from headwater.tls.telling import TellingSSLObject

logger = logging.getLogger(__name__)

# So long before it expires, operators are told.
WARNING_SECONDS = 14 * 86400

_Stamp = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    certificate: Path
    key: Path
    #: Those who sign the certificates of clients. Without them, clients are not asked for one.
    client_ca: Path | None = None
    #: Whoever shows no certificate is not let in.
    required: bool = False

    def context(self) -> ssl.SSLContext:
        """For new connections. Raises ConfigError if the files cannot be used."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.sslobject_class = TellingSSLObject
        try:
            # With a password, because OpenSSL asks for one on the terminal if it has none.
            context.load_cert_chain(self.certificate, self.key, password="")
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"the certificate {self.certificate} with the key {self.key} "
                f"cannot be used: {_reason(error)}"
            ) from None
        if self.client_ca is not None:
            try:
                context.load_verify_locations(self.client_ca)
            except (OSError, ValueError) as error:
                raise ConfigError(
                    f"the certificates in {self.client_ca}, for those of clients, "
                    f"cannot be used: {_reason(error)}"
                ) from None
            context.verify_mode = ssl.CERT_REQUIRED if self.required else ssl.CERT_OPTIONAL
        return context

    def expires(self) -> float:
        """When the certificate does, in seconds since 1970."""
        try:
            return expiry_of(self.certificate.read_text())
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"the certificate {self.certificate} cannot be used: {_reason(error)}"
            ) from None

    def stamp(self) -> _Stamp:
        """Another one when a file was written, or when a link leads to another file."""
        paths = (self.certificate, self.key, self.client_ca)
        return tuple(_stamp(path) for path in paths if path is not None)


class Keyring:
    """The newest files that could be used. `name`: of the listener."""

    def __init__(self, name: str, files: TlsFiles) -> None:
        self.name = name
        self.files = files
        self._loaded = self._seen = files.stamp()
        self.context = files.context()
        #: In seconds since 1970.
        self.expires = files.expires()
        #: Why what is in the files now is not what is used.
        self.fault: str | None = None

    def warning(self) -> str | None:
        """What an operator should know of it."""
        if self.fault is not None:
            return f"{self.name}: {self.fault}; the one before is still used"
        left = self.expires - time.time()
        if left > WARNING_SECONDS:
            return None
        what, when = f"the certificate {self.files.certificate} of {self.name}", _date(self.expires)
        if left <= 0:
            return f"{what} has expired ({when}): clients that check it do not connect"
        return f"{what} expires in {left / 86400:.0f} days ({when})"

    def look(self) -> bool:
        """Use files that have changed, and have not changed any more since the last look: between
        a certificate and its key, whoever renews them takes a moment. Whether there is something
        new."""
        stamp, before = self.files.stamp(), self._seen
        self._seen = stamp
        return stamp != self._loaded and stamp == before and self.reload()

    def reload(self) -> bool:
        """Use what is in the files now, if it can be used. Whether it can."""
        self._loaded = self._seen = self.files.stamp()
        try:
            context, expires = self.files.context(), self.files.expires()
        except ConfigError as error:
            self.fault = str(error)
            logger.warning(self.warning())
            return False
        self.context, self.expires, self.fault = context, expires, None
        logger.info("%s: new connections see the certificate as it is now", self.name)
        return True


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or str(error)
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
