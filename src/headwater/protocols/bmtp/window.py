"""The send window: the stream ids of a connection, and which message each one is taken by."""

from collections.abc import Iterable, Sequence

STREAMS = bytes(range(1, 256))

Key = tuple[str, str]


class Window:
    """A stream id is taken until the client acknowledges it, even if the message is no longer the
    client's: the document lets nothing but a PUBACK free it."""

    def __init__(self) -> None:
        # The one that was freed first is taken first: an id rests as long as possible.
        self._free = STREAMS
        self._taken: dict[int, tuple[Key, int] | None] = {}  # None: nobody waits for it any more

    @property
    def room(self) -> int:
        return len(self._free)

    def take(self, key: Key, offsets: Sequence[int]) -> bytes:
        """A stream id for each of these messages."""
        count = len(offsets)
        if count > len(self._free):
            raise ValueError(f"{count} messages need more than the {len(self._free)} free streams")
        streams, self._free = self._free[:count], self._free[count:]
        self._taken.update(zip(streams, [(key, offset) for offset in offsets], strict=True))
        return streams

    def take_these(self, key: Key, streams: bytes) -> None:
        """Take these stream ids, as far as they are free."""
        free = [stream for stream in streams if stream in self._free]
        self._free = self._free.translate(None, bytes(free))
        self._taken.update(dict.fromkeys(free, (key, 0)))

    def release(self, streams: bytes, acknowledged: dict[Key, list[int]]) -> None:
        """Free these stream ids, and add the offsets of their messages to `acknowledged`."""
        freed = bytearray()
        for stream in streams:
            if stream not in self._taken:
                continue  # the client is wrong, and nobody is harmed
            message = self._taken.pop(stream)
            freed.append(stream)
            if message is not None:
                key, offset = message
                acknowledged.setdefault(key, []).append(offset)
        self._free += bytes(freed)

    def forget(self, key: Key, offsets: Iterable[int]) -> None:
        """The client may still acknowledge these messages, but nobody waits for it."""
        gone = {(key, offset) for offset in offsets}
        for stream, message in self._taken.items():
            if message in gone:
                self._taken[stream] = None
