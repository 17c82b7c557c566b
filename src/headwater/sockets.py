"""What every listening socket of the broker has in common."""

import ipaddress
import socket

_PROBES = 3


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def notice_dead_peers(listening: socket.socket, seconds: float) -> None:
    """A peer that is gone without a word (no power, no network) is noticed after so many seconds,
    whether it is silent or is being sent something. Accepted connections inherit this.

    A peer that is there, and has had no room for what is sent for so long, is disconnected, too:
    Linux counts that time as unanswered. It keeps a consumer that hangs from holding messages.

    Half of the time a connection may be silent; then the system asks the peer three times.
    """
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", max(int(seconds / 2), 1)),
        ("TCP_KEEPINTVL", max(int(seconds / 2 / _PROBES), 1)),
        ("TCP_KEEPCNT", _PROBES),
        ("TCP_USER_TIMEOUT", int(seconds * 1000)),
    ):
        if (option := getattr(socket, name, None)) is not None:  # not every system has all of them
            listening.setsockopt(socket.IPPROTO_TCP, option, value)
