"""Looks after the files of all keyrings."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable

from headwater.tls.keyring import Keyring

LOOK_SECONDS = 1.0


class KeyringWatch:
    """`renewed` is called in the loop for each keyring that has something new."""

    def __init__(
        self, keyrings: Iterable[Keyring], renewed: Callable[[Keyring], None] = lambda _: None
    ) -> None:
        self._keyrings = tuple(keyrings)
        self._renewed = renewed
        self._at_once = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._keyrings:
            self._task = asyncio.get_running_loop().create_task(self._watch())

    def reload(self) -> None:
        """Take what is in the files now, whether it has changed or not."""
        self._at_once.set()

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _watch(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._at_once.wait()
            look = Keyring.reload if self._at_once.is_set() else Keyring.look
            self._at_once.clear()
            # In a thread: the files may be on a disk of the network.
            for each in await asyncio.to_thread(self._look, look):
                self._renewed(each)

    def _look(self, look: Callable[[Keyring], bool]) -> list[Keyring]:
        return [each for each in self._keyrings if look(each)]
