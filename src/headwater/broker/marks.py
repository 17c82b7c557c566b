"""Numbers in headers that only the broker can have put there.

What the broker publishes by itself tells in a header what it stands for, so that a broker that
crashed in between finds out what it had done. Clients see headers, and may publish their own: so
the number is signed.
"""

import hmac

from headwater.message import Run

MOST_DIGITS = 20  # of an offset


def mark(secret: int, number: int) -> str:
    return f"{_signature(secret, number)} {number}"


def marked(run: Run, header: str, secret: int) -> int | None:
    """The number that such a header of these messages holds."""
    value = next((value for name, value in run.headers if name == header), "")
    signature, _, text = value.partition(" ")
    if not (text.isdecimal() and len(text) < MOST_DIGITS):
        return None
    number = int(text)
    good = hmac.compare_digest(signature.encode(), _signature(secret, number).encode())
    return number if good else None


def _signature(secret: int, number: int) -> str:
    signed = hmac.digest(secret.to_bytes(8, "big"), b"%d" % number, "sha256")
    return signed[:16].hex()
