"""Lets a client of gRPC, which cannot choose its own address, come from another one."""

import contextlib
import socket
import threading
from collections.abc import Iterator

from tests.e2e.process import PATIENCE


@contextlib.contextmanager
def relay(port: int, address: str) -> Iterator[int]:
    """The port at which a client has to connect to come to `port` from `address`."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        accepting = threading.Thread(target=_accept, args=(server, port, address, stack))
        accepting.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            accepting.join()


def _accept(server: socket.socket, port: int, address: str, stack: contextlib.ExitStack) -> None:
    while True:
        try:
            client, _ = server.accept()
        except OSError:  # the test is over
            return
        broker = socket.create_connection(("127.0.0.1", port), PATIENCE, (address, 0))
        for source, target in ((client, broker), (broker, client)):
            stack.callback(_end, source)
            source.settimeout(None)
            threading.Thread(target=_pass, args=(source, target)).start()


def _pass(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
