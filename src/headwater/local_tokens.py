"""The token of a broker, for programs of the same user on the same machine.

A broker keeps a token in its data directory, and shows it to its own user under the address that it
listens on. So the connector and the commands on a laptop need not be told one. The directory and
its files are for that user only, and a file counts only while the broker that wrote it runs: who
takes over the port of a dead one is not given its token.
"""

import ipaddress
import json
import os
import secrets
import socket
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

FILE = "flight.token"
_ANY = ("0.0.0.0", "::")
_LOOPBACK = ("127.0.0.1", "::1")


def kept_in(data: Path) -> str:
    """The token of the broker with this data directory; it is made if there is none."""
    path = data / FILE
    with suppress(FileNotFoundError):
        if token := path.read_text().strip():
            return token
    token = f"hwo_{secrets.token_urlsafe(32)}"
    temporary = path.with_suffix(".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w") as file:
        file.write(f"{token}\n")
        file.flush()
        os.fsync(descriptor)
    temporary.replace(path)
    return token


class ShownToken:
    """A token that programs of the same user can find, until `withdraw`."""

    def __init__(self, host: str, port: int, token: str) -> None:
        self._path: Path | None = None
        content = json.dumps({"token": token, "pid": os.getpid()})
        for directory in _directories():
            try:
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                if _is_ours(directory, 0o077):
                    self._path = _write(directory / _name(host, port), content)
                    return
            except OSError:
                continue  # no home, or a full one

    def withdraw(self) -> None:
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def find(server: str) -> str | None:
    """The token of the broker at `host:port`, if it is one of this user's on this machine."""
    host, _, port = server.rpartition(":")
    if not port.isdigit():
        return None
    names = [_name(each, int(port)) for each in _hosts(host.strip("[]"))]
    for path in (directory / name for directory in _directories() for name in names):
        with suppress(OSError, ValueError, KeyError, TypeError):
            if _is_ours(path.parent, 0o077) and _is_ours(path, 0o077):
                content = json.loads(path.read_bytes())
                if _runs(int(content["pid"])):
                    token: str = content["token"]
                    return token
    return None


def _hosts(host: str) -> list[str]:
    """The addresses that a broker may listen on which is reached by this name; none if it is not
    of this machine."""
    if host == "localhost":
        return [*_LOOPBACK, host, *_ANY]
    local = host in (socket.gethostname(), socket.getfqdn())
    with suppress(ValueError):
        local = local or ipaddress.ip_address(host).is_loopback
    return [host, *_ANY] if local else []


def _directories() -> Iterator[Path]:
    """Where it is shown, the first that can be used; the same however a program was started."""
    user = os.getuid()
    yield Path(f"/run/user/{user}/headwater")
    with suppress(ImportError, KeyError):
        import pwd

        yield Path(pwd.getpwuid(user).pw_dir) / ".cache" / "headwater"
    yield Path(f"/tmp/headwater-{user}")


def _name(host: str, port: int) -> str:
    return f"flight-{host.replace(':', '.')}-{port}.json"


def _write(path: Path, content: str) -> Path:
    temporary = path.with_suffix(f".{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "w") as file:
        file.write(content)
    temporary.replace(path)
    return path


def _is_ours(path: Path, closed: int) -> bool:
    """Nobody else can have written there, nor read."""
    status = path.lstat()
    return (
        status.st_uid == os.getuid()
        and not status.st_mode & closed
        and not stat.S_ISLNK(status.st_mode)
    )


def _runs(pid: int) -> bool:
    """Whether there is a process of this user with that number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return False  # another user's
    return True
