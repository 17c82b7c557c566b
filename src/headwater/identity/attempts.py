"""Failed logins: who has had too many has to wait, longer each time.

They are counted by the address that they come from, and by the name that they are for. So nobody
gets on by trying many names from one place, or one name from many places. Someone who has logged in
from an address before is not kept out of it because others try that name elsewhere, nor because
others fail at the same address: that would let anybody lock out everybody.

Some give no name: a token says by itself whose it is. They are counted by their address alone, and
apart from those who give one.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

MOST_REMEMBERED = 10_000
# So many attempts are free; each further one doubles the wait.
FREE_ATTEMPTS = 5
LONGEST_WAIT = 300.0
# After so long without another failure, all is forgotten.
FORGIVEN_SECONDS = 3600.0


class Attempts:
    """Any thread may use it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # By what they are counted for: how many, and not before when the next one may be made.
        self._failed: OrderedDict[tuple[str, str], tuple[int, float]] = OrderedDict()
        self._trusted: OrderedDict[tuple[str, str], None] = OrderedDict()
        #: Attempts that were refused because of those before.
        self.refused = 0

    def wait_for(self, address: str, name: str) -> float:
        """Seconds until the next attempt may be made; 0: now."""
        with self._lock:
            both = (address, name)
            alone = not name or both in self._trusted
            keys = [both] if alone else self._keys(address, name)
            now = self._clock()
            wait = max([self._failed.get(key, (0, 0.0))[1] - now for key in keys])
            if wait > 0:
                self.refused += 1
            return max(wait, 0.0)

    def failed(self, address: str, name: str) -> None:
        with self._lock:
            now = self._clock()
            for key in [*self._keys(address, name), (address, name)]:
                count, until = self._failed.pop(key, (0, now))
                count = 1 if now - until > FORGIVEN_SECONDS else count + 1
                wait = 0.0
                if count >= FREE_ATTEMPTS:
                    wait = min(2.0 ** min(count - FREE_ATTEMPTS, 16), LONGEST_WAIT)
                self._failed[key] = (count, now + wait)
            while len(self._failed) > MOST_REMEMBERED:
                self._failed.popitem(last=False)

    def succeeded(self, address: str, name: str) -> None:
        with self._lock:
            for key in [*self._keys(address, name), (address, name)]:
                self._failed.pop(key, None)
            self._trusted.pop((address, name), None)
            self._trusted[address, name] = None
            while len(self._trusted) > MOST_REMEMBERED:
                self._trusted.popitem(last=False)

    def _keys(self, address: str, name: str) -> list[tuple[str, str]]:
        """What an attempt is counted for, besides this name from this address."""
        return [("address", address), ("name", name)] if name else []
