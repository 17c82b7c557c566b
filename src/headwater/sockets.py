"""What every listening socket of the broker has in common, and the end of a connection."""

import ipaddress
import os
import socket
import stat
from collections.abc import Set
from contextlib import suppress

_PROBES = 3
#: So much the system keeps of what it could not send yet to a peer that reads slowly. Its own limit
#: is 4 MiB: with a few hundred peers that read nothing, it had no memory left for the connections
#: of anyone. (With 128 KiB, one publisher to 64 subscribers is a quarter slower.)
UNSENT_BYTES = 256 * 1024


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def bound_peers(listening: socket.socket, seconds: float) -> None:
    """What peers may cost that read slowly, or not at all. Accepted connections inherit this.

    A peer that is gone without a word (no power, no network) is noticed after so many seconds,
    whether it is silent or is being sent something.

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
        ("TCP_NOTSENT_LOWAT", UNSENT_BYTES),
    ):
        if (option := getattr(socket, name, None)) is not None:  # not every system has all of them
            listening.setsockopt(socket.IPPROTO_TCP, option, value)


def hang_up(host: str, port: int, at: int) -> bool:
    """Close the connection of that peer to our port `at`, whichever library has it; whether there
    was one. Its owner sees the peer hang up. (The peer may have others to other ports of ours, from
    the same port of its own.)"""
    for name in os.listdir("/dev/fd"):
        with suppress(OSError):  # it is gone, or connected to nobody
            # A copy: it stays the same connection, even if the number means another one by now.
            copy = os.dup(int(name))
            if not stat.S_ISSOCK(os.fstat(copy).st_mode):
                os.close(copy)
            elif _hang_up(copy, host, port, at):
                return True
    return False


def _hang_up(descriptor: int, host: str, port: int, at: int) -> bool:
    with socket.socket(fileno=descriptor) as connection:
        peer = connection.getpeername()
        if not isinstance(peer, tuple) or peer[1] != port or connection.getsockname()[1] != at:
            return False
        if str(peer[0]).removeprefix("::ffff:") != host:
            return False
        connection.shutdown(socket.SHUT_RDWR)
    return True


def hang_up_on(inodes: Set[int]) -> set[int]:
    """The same for connections of this process that are known by their inodes; which of them there
    were. It looks at each open file once, however many it closes."""
    names = {f"socket:[{inode}]" for inode in inodes}
    done = set()
    for name in os.listdir("/dev/fd"):
        with suppress(OSError):
            if os.readlink(f"/dev/fd/{name}") in names:
                with socket.socket(fileno=os.dup(int(name))) as connection:
                    if (inode := os.fstat(connection.fileno()).st_ino) in inodes:
                        connection.shutdown(socket.SHUT_RDWR)
                        done.add(inode)
    return done
