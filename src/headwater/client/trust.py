"""Inside TLS: whom a client trusts, and what it shows of itself."""

import os
import ssl
from dataclasses import dataclass

from headwater.errors import HeadwaterError

CA_VARIABLE = "HEADWATER_CLIENT_CA"
CERTIFICATE_VARIABLE = "HEADWATER_CLIENT_CERTIFICATE"
KEY_VARIABLE = "HEADWATER_CLIENT_KEY"


@dataclass(frozen=True, slots=True)
class Trust:
    """Names of files (PEM); an empty one stands for none."""

    #: Those who may have signed the broker's certificate, instead of those the system trusts.
    ca: str = ""
    #: The client's own certificate, if the broker asks for one.
    certificate: str = ""
    #: Its key, if that is in another file.
    key: str = ""

    @classmethod
    def from_environment(cls) -> "Trust":
        names = (CA_VARIABLE, CERTIFICATE_VARIABLE, KEY_VARIABLE)
        return cls(*(os.environ.get(name, "") for name in names))

    def context(self) -> ssl.SSLContext:
        if self.key and not self.certificate:
            raise HeadwaterError(f"the key {self.key} is of no use without its certificate")
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
        except OSError as error:
            raise _unusable(f"the certificates in {self.ca}", error) from None
        if self.certificate:
            try:
                # With a password, because OpenSSL asks for one on the terminal if it has none.
                context.load_cert_chain(self.certificate, self.key or None, password="")
            except OSError as error:
                key = f" with the key {self.key}" if self.key else ""
                raise _unusable(f"the certificate {self.certificate}{key}", error) from None
        return context


def _unusable(what: str, error: OSError) -> HeadwaterError:
    why = error.reason if isinstance(error, ssl.SSLError) else error.strerror
    return HeadwaterError(f"{what} cannot be used: {why or error}")
