"""Masking of WebSocket frames (RFC 6455, 5.3) in C.

Borrowed from the package `websockets`: `apply_mask`, which is no part of its documented interface.
Integers of Python, the quickest way without it, took 5 times as long for 16 bytes and 38 times for
1,024. If the function goes away or works otherwise, the broker says so and does not start.
"""

from headwater.borrowed import WEBSOCKETS

try:
    from websockets.speedups import apply_mask
except ImportError:  # where the package has no compiled part
    with WEBSOCKETS.imports():
        from websockets.utils import apply_mask

__all__ = ["apply_mask", "check"]


def check() -> None:
    """The function of C has no signature to look at, so it is tried."""
    try:
        works = apply_mask(b"\x01\x02\x03\x04\x05", b"\x01\x01\x01\x01") == b"\x00\x03\x02\x05\x04"
    except TypeError:
        works = False
    if not works:
        raise WEBSOCKETS.changed("apply_mask(data, mask) does not mask")


check()
