"""Who calls over Flight, where every call says it anew: by a token, or by a certificate."""

import time
from collections import OrderedDict

from headwater.actions import ANONYMOUS
from headwater.errors import Code, Refusal
from headwater.identity.gatekeeper import GateEvent, Gatekeeper
from headwater.rights import Principal, Rights

# A client makes very many calls; that it has come is recorded once in this time.
RECORD_SECONDS = 600.0
MOST_REMEMBERED = 1000


class TokenGate:
    """Called by one thread at a time, which is not that of the event loop. `record` may be called
    there, too."""

    def __init__(self, gate: Gatekeeper, *, anonymous: bool) -> None:
        self._gate = gate
        self._anonymous = anonymous
        self._seen: OrderedDict[tuple[str, str], float] = OrderedDict()

    def admit(self, token: str, certified: str, address: str) -> Rights:
        """What whoever calls may do. Raises Refusal."""
        if token:
            # Whoever has one comes in, whatever others at that address try: nobody can guess it.
            rights = self._gate.user_with_token(token)
            if rights is None:
                raise self._unknown(address)
            self._record(rights, address, "token")
            return rights
        if certified:
            rights = self._gate.arriving(certified, False)
            self._record(rights, address, "certificate")
            return rights
        if self._anonymous:
            return self._gate.rights_of(Principal(ANONYMOUS))
        raise Refusal(Code.NOT_PERMITTED, "there is no token")

    def _unknown(self, address: str) -> Refusal:
        """Of a token that nobody has. After too many from an address, further ones are only
        refused for a while, and not told."""
        attempts, host = self._gate.attempts, address.rpartition(":")[0]
        if (wait := attempts.wait_for(host, "")) > 0:
            return Refusal(Code.NOT_PERMITTED, f"too many attempts: wait {int(wait) + 1} s")
        attempts.failed(host, "")
        self._gate.note(GateEvent("a token", address, "token", "it is not known"))
        return Refusal(Code.NOT_PERMITTED, "this token is not known")

    def _record(self, rights: Rights, address: str, how: str) -> None:
        key, now = (str(rights.principal), address.rpartition(":")[0]), time.monotonic()
        if now - self._seen.get(key, -RECORD_SECONDS) < RECORD_SECONDS:
            return
        self._seen[key] = now
        while len(self._seen) > MOST_REMEMBERED:
            self._seen.popitem(last=False)
        self._gate.note(GateEvent(str(rights.principal), address, f"flight {how}"))
