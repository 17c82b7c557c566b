"""Lets a client read why its handshake has failed, and operators as well."""

import logging
import ssl

logger = logging.getLogger(__name__)

# What OpenSSL makes of bytes that are no TLS at all.
_NOT_TLS = {"HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "WRONG_VERSION_NUMBER"}


class TellingSSLObject(ssl.SSLObject):
    """Event loops drop the connection when a handshake fails, and OpenSSL's alert with it. So the
    failure is told only when the client has said something after that, or has hung up; if it does
    neither, its time is up some day. Who speaks no TLS would not understand an alert.
    """

    _failure: str | None = None

    def do_handshake(self) -> None:
        if self._failure is not None:
            raise ssl.SSLError(self._failure)
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            if error.reason in _NOT_TLS:
                raise
            self._failure = reason_of(error)
            logger.debug("a TLS handshake has failed: %s", self._failure)
            raise ssl.SSLWantReadError from error


def reason_of(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        known = error.reason or str(error)
        return "the client does not speak TLS" if known in _NOT_TLS else known
    return str(error) or type(error).__name__
