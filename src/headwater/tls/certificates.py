"""What certificates say: until when the broker's own is valid, and who a client is."""

import calendar
import re
import ssl
import time
from asyncio import BaseTransport
from collections.abc import Iterator

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
# Tags of ASN.1: [0], the version that old certificates do not have, and the older way to write a
# time, with two digits for the year.
_VERSION, _UTC_TIME = 0xA0, 0x17


def expiry_of(chain: str) -> float:
    """When the first certificate of a chain (PEM) expires, in seconds since 1970. Python's ssl says
    it only of certificates that others have shown, and that are valid.

    RFC 5280, 4.1: Certificate ::= SEQUENCE { tbsCertificate SEQUENCE { [0] version, serialNumber,
    signature, issuer, validity SEQUENCE { notBefore, notAfter }, ... }, ... }
    """
    found = _PEM.search(chain)
    if found is None:
        raise ValueError("there is no certificate in it")
    try:
        (_, certificate), *_ = _elements(ssl.PEM_cert_to_DER_cert(found[0]))
        (_, signed), *_ = _elements(certificate)
        _, _, _, validity, *_ = (content for tag, content in _elements(signed) if tag != _VERSION)
        _, (tag, until) = _elements(validity)
        written = "%y%m%d%H%M%SZ" if tag == _UTC_TIME else "%Y%m%d%H%M%SZ"
        return float(calendar.timegm(time.strptime(until.decode("ascii"), written)))
    except (ValueError, IndexError) as error:
        raise ValueError("it is not clear when the certificate expires") from error


def _elements(der: bytes) -> Iterator[tuple[int, bytes]]:
    """The elements that stand one after the other, each with its tag."""
    while der:
        tag, length, start = der[0], der[1], 2
        if length & 0x80:  # so many bytes have the length
            start += length & 0x7F
            length = int.from_bytes(der[2:start], "big")
        yield tag, der[start : start + length]
        der = der[start + length :]


def common_name(transport: BaseTransport) -> str:
    """Of the subject of the certificate that the client has shown, and that was verified."""
    certificate = transport.get_extra_info("peercert") or {}
    for names in certificate.get("subject", ()):
        for kind, value in names:
            if kind == "commonName":
                return str(value)
    return ""
