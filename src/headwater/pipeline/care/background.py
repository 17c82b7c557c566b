"""Work beside the queries: a thread that lasts as long as a `with`."""

import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import ClassVar, Self


class Background(ABC):
    #: The longest wait for the thread at the end. A process that ends takes the thread with it.
    join_seconds: ClassVar[float] = 5.0

    def __init__(self, name: str) -> None:
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def _run(self) -> None:
        """Until `_stopping` is set."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join(self.join_seconds)
