"""How a thread that computes beside the event loop lets the loop go first.

Python runs one thread at a time. The loop lets go of the interpreter whenever it looks at its
sockets, and needs it again for each one that is ready. While another thread computes, it waits for
that thread each time, as long as a thread may go on (`sys.setswitchinterval`): a turn over 100
sockets takes 100 times as long. So a thread that computes pauses often, and where it notices that
others are waiting, it leaves most of the time to them.
"""

from time import perf_counter, sleep, thread_time

# So long a thread computes without a pause.
WORK_SECONDS = 0.0003
# A pause that is long enough for a thread that waits to go on, and hardly longer.
SHORT_SECONDS = 0.00002
# A short pause that took longer than this has met someone.
MET_SECONDS = 0.0003
# Then the next one is so long.
LONG_SECONDS = 0.002


class Courtesy:
    """Of one piece of work in one thread."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = thread_time() + WORK_SECONDS

    def show(self) -> None:
        """Pause if it is time to. Call it after every few microseconds of work."""
        if thread_time() < self._until:
            return
        began = perf_counter()
        sleep(SHORT_SECONDS)
        if perf_counter() - began > MET_SECONDS:
            sleep(LONG_SECONDS)
        self._until = thread_time() + WORK_SECONDS
