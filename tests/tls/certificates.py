"""Certificates made for a test, by the `openssl` command: an authority, and who it has signed."""

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Signed:
    """A certificate, and its key."""

    certificate: Path
    key: Path

    def replace(self, other: "Signed") -> None:
        """Put another pair in the place of this one, as those who renew certificates do it: a link
        is exchanged, and no file is ever written half."""
        for mine, its in ((self.key, other.key), (self.certificate, other.certificate)):
            link = mine.with_suffix(".new")
            link.symlink_to(its)
            link.rename(mine)


class Authority:
    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._number = 0
        self.certificate = directory / f"{name}.pem"
        self._key = directory / f"{name}.key"
        _openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-subj", f"/CN={name}", "-days", "30", "-out", self.certificate),
            *("-addext", "keyUsage=critical,keyCertSign", "-keyout", self._key),
        )

    def server(self, days: int = 30) -> Signed:
        """For a broker on this machine."""
        return self._sign("localhost", "subjectAltName=DNS:localhost,IP:127.0.0.1", days)

    def client(self, name: str) -> Signed:
        return self._sign(name, "extendedKeyUsage=clientAuth", 30)

    def _sign(self, name: str, extension: str, days: int) -> Signed:
        self._number += 1
        stem = self._directory / f"{self.certificate.stem}-{self._number}"
        signed = Signed(stem.with_suffix(".pem"), stem.with_suffix(".key"))
        request, extensions = stem.with_suffix(".csr"), stem.with_suffix(".ext")
        extensions.write_text(f"{extension}\n")
        _openssl(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-subj", f"/O=Headwater/CN={name}", "-keyout", signed.key, "-out", request),
        )
        _openssl(
            *("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key),
            *("-days", days, "-set_serial", self._number, "-extfile", extensions),
            *("-out", signed.certificate),
        )
        return signed

    def locked(self, pair: Signed, password: str) -> Signed:
        """The same, with a key that needs a password."""
        key = pair.key.with_suffix(".locked")
        _openssl("ec", "-in", pair.key, "-out", key, "-aes256", "-passout", f"pass:{password}")
        return Signed(pair.certificate, key)

    def context(self, own: Signed | None = None) -> ssl.SSLContext:
        """Of a client that trusts the authority, and may have a certificate of its own."""
        context = ssl.create_default_context(cafile=self.certificate)
        if own is not None:
            context.load_cert_chain(own.certificate, own.key)
        return context


def _openssl(*arguments: object) -> None:
    made = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
