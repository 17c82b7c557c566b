"""The broker's side of the console: a child process that is started again when it dies.

The listening socket belongs to the broker, which hands it on. So the address is taken, or refused,
when the broker starts, and stays the same whatever becomes of the child.
"""

import asyncio
import errno
import logging
import os
import signal
import socket
import sys
import time
from asyncio.subprocess import Process
from contextlib import suppress
from dataclasses import replace

from headwater.console.settings import ConsoleSettings
from headwater.errors import HeadwaterError
from headwater.sockets import bound_peers

logger = logging.getLogger(__name__)

BACKLOG = 256
FIRST_DELAY = 0.2
LONGEST_DELAY = 10.0
# One that has run for so long was no failure from the start.
GOOD_SECONDS = 30.0
FAREWELL_SECONDS = 2.0
TAKEN_SECONDS = 3.0


class ConsoleSupervisor:
    def __init__(self, settings: ConsoleSettings, *, log_format: str) -> None:
        self._settings = settings
        self._log_format = log_format
        self._listening: socket.socket | None = None
        self._child: Process | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> tuple[str, int]:
        """Listen, and start the process; returns the address."""
        host, port = self._settings.host, self._settings.port
        try:
            self._listening = await self._listen(host, port)
        except OSError as error:
            raise HeadwaterError(
                f"cannot listen for console on {host}:{port}: {error.strerror}; "
                'choose another address with [listen] console = "host:port"'
            ) from None
        bound = self._listening.getsockname()
        self._settings = replace(self._settings, host=host, port=bound[1])
        self._task = asyncio.get_running_loop().create_task(self._supervise())
        return host, bound[1]

    async def _listen(self, host: str, port: int) -> socket.socket:
        """After a crash, the console of the broker before has the address for a moment longer."""
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        until = time.monotonic() + TAKEN_SECONDS
        while True:
            try:
                listening = socket.create_server(address[:2], family=family, backlog=BACKLOG)
                bound_peers(listening, self._settings.dead_peer_seconds)
                return listening
            except OSError as error:
                if error.errno != errno.EADDRINUSE or time.monotonic() > until:
                    raise
            await asyncio.sleep(0.05)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._child is not None and self._child.returncode is None:
            await self._end(self._child)
        if self._listening is not None:
            self._listening.close()

    @property
    def secure(self) -> bool:
        return self._settings.secure

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    def reload_certificate(self) -> None:
        """The broker has seen that the files have changed. A console that starts reads them."""
        if self._child is not None and self._child.returncode is None:
            with suppress(ProcessLookupError):
                self._child.send_signal(signal.SIGHUP)

    async def _supervise(self) -> None:
        delay = FIRST_DELAY
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                self._child = await self._spawn()
                what = f"has ended with code {await self._child.wait()}"
            except OSError as error:
                what = f"could not be started ({error.strerror})"
            except Exception as error:  # nobody else would try again
                logger.exception("the console could not be started")
                what = f"could not be started ({type(error).__name__})"
            delay = FIRST_DELAY if loop.time() - began > GOOD_SECONDS else delay * 2
            delay = min(delay, LONGEST_DELAY)
            logger.error("the console %s; it starts again in %.1f s", what, delay)
            await asyncio.sleep(delay)

    async def _spawn(self) -> Process:
        settings, listening = self._settings, self._listening
        assert listening is not None
        arguments = ["--data", str(settings.data), "--fd", str(listening.fileno())]
        arguments += ["--host", settings.host, "--port", str(settings.port)]
        arguments += ["--session-hours", str(settings.session_hours)]
        arguments += ["--connections", str(settings.connections)]
        arguments += ["--handshake-seconds", str(settings.handshake_seconds)]
        arguments += ["--unfinished-seconds", str(settings.unfinished_seconds)]
        arguments += ["--log-format", self._log_format]
        if settings.anonymous:
            arguments += ["--anonymous"]
        for name in settings.names:
            arguments += ["--name", name]
        if (tls := settings.tls) is not None:
            arguments += ["--certificate", str(tls.certificate), "--key", str(tls.key)]
            arguments += ["--handshake-seconds", str(settings.handshake_seconds)]
            if tls.client_ca is not None:
                arguments += ["--client-ca", str(tls.client_ca)]
            if tls.required:
                arguments.append("--certificate-required")
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # what lies about in the working directory is not imported
            "-m",
            "headwater.console",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            pass_fds=[listening.fileno()],
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )

    async def _end(self, child: Process) -> None:
        """Its standard input ends, and it knows what that means."""
        assert child.stdin is not None
        child.stdin.close()
        try:
            async with asyncio.timeout(FAREWELL_SECONDS):
                await child.wait()
        except TimeoutError:
            child.kill()
            await child.wait()
