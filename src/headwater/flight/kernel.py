"""What the kernel knows of the connections to one of our ports (Linux: `man 7 sock_diag`).

gRPC has Flight's connections, and tells nobody of them. The kernel is asked with one message, and
answers with all that there are, whatever else the process has open:

    header     u32 length, u16 kind, u16 flags, u32 number, u32 0
    question   u8 family (0: any), u8, u8, u8 1 << INFO, 48 bytes, u32 states, u32 0
    attribute  u16 length, u16 BYTECODE: two steps, which are sport >= port and sport <= port

    header     as above
    answer     u8 family, u8 state, u16, 48 bytes: u16 sport, u16 dport (both in the network's
               order), source[16], destination[16], …; u32, u32 not read yet, u32, u32, u32 inode
    attributes u16 length, u16 kind, and for INFO: struct tcp_info
"""

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_NETLINK_SOCK_DIAG = 4
_TCPDIAG_GETSOCK = 18
_REQUEST_DUMP = 0x301
_ERROR, _DONE = 2, 3
_BYTECODE, _INFO = 1, 2
_AT_LEAST, _AT_MOST = 2, 3
_STATES = 1 << 1 | 1 << 8  # ESTABLISHED, CLOSE_WAIT: those that a program has open
_HEADER = struct.Struct("=IHHII")
_QUESTION = struct.Struct("=BBBB48xII")
_STEP = struct.Struct("=BBHHH")
_ANSWER = struct.Struct("=BBxx48sIIIII")
_ATTRIBUTE = struct.Struct("=HH")
#: In struct tcp_info (Linux 4.1): how much has arrived at the other end, and here.
_BYTES = struct.Struct("=120xQQ")
_BUFFER = 256 * 1024
_PATIENCE = 5.0


@dataclass(frozen=True, slots=True)
class Wire:
    """A connection as the kernel has it."""

    #: Which one it is, and whose: the addresses and the kernel's own number for it.
    identity: bytes
    family: int
    inode: int
    #: Bytes that the program has read, and that the peer has acknowledged.
    read: int
    acknowledged: int

    @property
    def peer(self) -> tuple[str, int]:
        (port,) = struct.unpack_from(">H", self.identity, 2)
        size = 4 if self.family == socket.AF_INET else 16
        host = socket.inet_ntop(self.family, self.identity[20 : 20 + size])
        return host.removeprefix("::ffff:"), port


class Kernel:
    """For one thread at a time. Raises OSError where the system does not answer such questions."""

    def __init__(self) -> None:
        if not hasattr(socket, "AF_NETLINK"):
            raise OSError("there is no sock_diag on this system")
        self._socket = _question_socket()

    def close(self) -> None:
        self._socket.close()

    def wires(self, port: int) -> list[Wire]:
        """The connections that a program has accepted on that port."""
        steps = _STEP.pack(_AT_LEAST, 8, 20, 0, port) + _STEP.pack(_AT_MOST, 8, 12, 0, port)
        question = _QUESTION.pack(0, 0, 0, 1 << (_INFO - 1), _STATES, 0)
        body = question + _ATTRIBUTE.pack(_ATTRIBUTE.size + len(steps), _BYTECODE) + steps
        header = _HEADER.pack(_HEADER.size + len(body), _TCPDIAG_GETSOCK, _REQUEST_DUMP, 1, 0)
        self._socket.send(header + body)
        try:
            found = [_wire(answer) for answer in self._answers()]
        except OSError:  # the rest of the answers is for nobody
            old, self._socket = self._socket, _question_socket()
            old.close()
            raise
        return [each for each in found if each is not None and each.inode]  # 0: not accepted yet

    def _answers(self) -> Iterator[memoryview]:
        while True:
            data, at = memoryview(self._socket.recv(_BUFFER)), 0
            while at < len(data):
                size, kind, *_ = _HEADER.unpack_from(data, at)
                if kind == _DONE:
                    return
                if kind == _ERROR:
                    raise OSError("the kernel does not tell of connections")
                yield data[at + _HEADER.size : at + size]
                at += size + -size % 4


def _question_socket() -> socket.socket:
    kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
    made = socket.socket(socket.AF_NETLINK, kind, _NETLINK_SOCK_DIAG)
    made.settimeout(_PATIENCE)
    return made


def _wire(answer: memoryview) -> Wire | None:
    family, _, identity, _, unread, _, _, inode = _ANSWER.unpack_from(answer)
    at = _ANSWER.size
    while at + _ATTRIBUTE.size <= len(answer):
        size, kind = _ATTRIBUTE.unpack_from(answer, at)
        if kind == _INFO and size >= _ATTRIBUTE.size + _BYTES.size:
            acknowledged, received = _BYTES.unpack_from(answer, at + _ATTRIBUTE.size)
            return Wire(identity, family, inode, max(received - unread, 0), acknowledged)
        at += max(size + -size % 4, _ATTRIBUTE.size)
    return None
