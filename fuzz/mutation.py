"""New inputs out of old ones.

Most inputs of a protocol are refused at their first wrong byte, so mutations know what its bytes
are made of: words of its code, numbers at the ends of their ranges, and sizes that are in front of
what they measure. What is left to chance comes from a seed.
"""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from struct import Struct
from typing import Any

MOST_BYTES = 2048
#: Now and then an input may be larger, for what is only looked at then.
MOST_LARGE_BYTES = 65536
LARGE = 0.002
MOST_STEPS = 5

#: The ends of ranges, and beside them.
_EDGES = (0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 63, 64, 100, 125, 126, 127, 128, 254, 255)
_LARGE_EDGES = (256, 1000, 1023, 1024, 1025, 4095, 4096, 32767, 32768, 65534, 65535, 65536)
_HUGE_EDGES = (
    2**20,
    2**24 - 1,
    2**24,
    2**24 + 1,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63 - 1,
    2**64 - 1,
)
_WIDTHS = {1: Struct(">B"), 2: Struct(">H"), 4: Struct(">I"), 8: Struct(">Q")}
_LITTLE = {1: Struct("<B"), 2: Struct("<H"), 4: Struct("<I"), 8: Struct("<Q")}
_MASKED = 0x80  # a client's WebSocket frame: this bit, seven bits of size, and four bytes of key

Step = Callable[[bytearray], None]

#: Values of JSON that someone may not expect.
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 0.5, 1e308, -0.0, 2**31, 2**53, 2**63 - 1, 2**63, 2**70),
    *("", "a", "0", "a/b", "#", "+", ".*", "(", "-1", "\0", "\ud800", "é", "x" * 2000, "a/" * 300),
    *([], {}, [[]], ["a"], [1], {"a": "b"}, {"a": 1}, [None] * 50),
)


class Mutator:
    """`corpus` may grow meanwhile; what is new in it is chosen more often. `has_json`: inputs have
    objects of JSON in them."""

    def __init__(
        self, corpus: Sequence[bytes], words: Sequence[bytes], seed: int, has_json: bool = False
    ) -> None:
        self._corpus = corpus
        self._words = words or [b"\0"]
        self._random = random.Random(seed)
        self._chance = self._random.random
        self._steps: tuple[Step, ...] = (
            self._flip_bit,
            self._set_byte,
            self._set_number,
            self._insert_word,
            self._insert_word,
            self._overwrite_word,
            self._insert_bytes,
            self._delete,
            self._copy,
            self._repeat,
            self._splice,
            self._splice,
            self._cut,
            self._change_digits,
            self._resize,
            self._resize,
            self._resize,
            self._measure,
        )
        if has_json:
            self._steps += (self._change_json,) * len(self._steps)

    def next(self) -> bytes:
        data = bytearray(self._chosen())
        for _ in range(1 + self._below(MOST_STEPS)):
            self._steps[self._below(len(self._steps))](data)
        most = MOST_LARGE_BYTES if self._chance() < LARGE else MOST_BYTES
        if len(data) > most:
            del data[most:]
        return bytes(data)

    def _chosen(self) -> bytes:
        count = len(self._corpus)
        if count > 16 and self._chance() < 0.3:
            return self._corpus[count - 1 - self._below(count // 8)]
        return self._corpus[self._below(count)]

    def _below(self, end: int) -> int:
        return int(self._chance() * end)

    def _range(self, data: bytearray) -> tuple[int, int]:
        """Some bytes, more often few than many."""
        if not data:
            return 0, 0
        start = self._below(len(data))
        most = len(data) - start
        length = 1 + self._below(min(most, 8) if self._chance() < 0.6 else most)
        return start, start + length

    def _flip_bit(self, data: bytearray) -> None:
        if data:
            data[self._below(len(data))] ^= 1 << self._below(8)

    def _set_byte(self, data: bytearray) -> None:
        if data:
            edge = self._chance() < 0.5
            value = _EDGES[self._below(len(_EDGES))] if edge else self._below(256)
            data[self._below(len(data))] = value

    def _set_number(self, data: bytearray) -> None:
        width = (1, 2, 4, 8)[self._below(4)]
        if len(data) >= width:
            edges = (_EDGES, _LARGE_EDGES, _HUGE_EDGES)[self._below(3)]
            number = edges[self._below(len(edges))] & (1 << 8 * width) - 1
            layout = (_WIDTHS if self._chance() < 0.7 else _LITTLE)[width]
            layout.pack_into(data, self._below(len(data) - width + 1), number)

    def _word(self) -> bytes:
        return self._words[self._below(len(self._words))]

    def _insert_word(self, data: bytearray) -> None:
        at = self._below(len(data) + 1)
        data[at:at] = self._word()

    def _overwrite_word(self, data: bytearray) -> None:
        word = self._word()
        at = self._below(len(data) + 1)
        data[at : at + len(word)] = word

    def _insert_bytes(self, data: bytearray) -> None:
        at = self._below(len(data) + 1)
        data[at:at] = self._random.randbytes(1 + self._below(8))

    def _delete(self, data: bytearray) -> None:
        start, stop = self._range(data)
        del data[start:stop]

    def _copy(self, data: bytearray) -> None:
        start, stop = self._range(data)
        at = self._below(len(data) + 1)
        data[at:at] = data[start:stop]

    def _repeat(self, data: bytearray) -> None:
        start, stop = self._range(data)
        times = 1 + self._below(40 if self._chance() < 0.1 else 4)
        data[stop:stop] = data[start:stop] * times

    def _splice(self, data: bytearray) -> None:
        other = self._chosen()
        start, stop = self._range(bytearray(other))
        at = self._below(len(data) + 1)
        if self._chance() < 0.5:
            data[at:] = other[start:]
        else:
            data[at:at] = other[start:stop]

    def _cut(self, data: bytearray) -> None:
        del data[self._below(len(data) + 1) :]

    def _change_digits(self, data: bytearray) -> None:
        """A number in text becomes another one."""
        digits = [at for at, byte in enumerate(data) if 0x30 <= byte <= 0x39]
        if not digits:
            return
        start = stop = digits[self._below(len(digits))]
        while stop < len(data) and 0x30 <= data[stop] <= 0x39:
            stop += 1
        edges = (_EDGES, _LARGE_EDGES, _HUGE_EDGES)[self._below(3)]
        sign = b"-" if self._chance() < 0.1 else b""
        data[start:stop] = sign + b"%d" % edges[self._below(len(edges))]

    def _resize(self, data: bytearray) -> None:
        """Put something into what has its size in front of it, or take it out, and keep the size
        true: so what is inside is looked at."""
        for _ in range(8):
            found = self._size_at(data, self._below(len(data) + 1))
            if found is None:
                continue
            at, width, start, stop, masked = found
            inside = data[start:stop]
            for _ in range(1 + self._below(2)):
                self._steps[self._below(10)](inside)
            limit = 126 if masked else 1 << 8 * width
            if len(inside) < limit:
                data[start:stop] = inside
                _WIDTHS[width].pack_into(data, at, len(inside) | (_MASKED if masked else 0))
            return

    def _size_at(self, data: bytearray, at: int) -> tuple[int, int, int, int, bool] | None:
        """A number here that may be the size of what follows: where, how wide, of which bytes,
        and whether it is that of a masked frame."""
        if at < len(data) and data[at] & _MASKED and at + 5 + (data[at] & 0x7F) <= len(data):
            return at, 1, at + 5, at + 5 + (data[at] & 0x7F), True
        for width in (8, 4, 2, 1):
            if at + width < len(data):
                (size,) = _WIDTHS[width].unpack_from(data, at)
                if 0 < size <= len(data) - at - width:
                    return at, width, at + width, at + width + size, False
        return None

    def _change_json(self, data: bytearray) -> None:
        """Another value in the first object of JSON, which is still one afterwards."""
        start = data.find(b"{")
        with suppress(ValueError, RecursionError):
            # As Latin-1, so that a character is a byte, and whatever follows is text.
            content, end = _JSON.raw_decode(data[start:].decode("latin-1"))
            if places := list(_places(content)):
                self._change_value(*places[self._below(len(places))])
                data[start : start + end] = json.dumps(content).encode()

    def _change_value(self, container: Any, key: Any) -> None:
        kind = self._chance()
        if kind < 0.6:
            container[key] = _VALUES[self._below(len(_VALUES))]
        elif kind < 0.7:
            del container[key]
        elif isinstance(container, dict):
            word = self._word().decode(errors="replace")
            container[word if kind < 0.85 else key] = word
        else:
            container.insert(key, container[key])

    def _measure(self, data: bytearray) -> None:
        """Let some number be the size of all that follows, or nearly."""
        width = (1, 2, 4, 8)[self._below(4)]
        if len(data) > width:
            at = self._below(len(data) - width)
            size = max(len(data) - at - width + (0, 0, 0, -1, 1)[self._below(5)], 0)
            _WIDTHS[width].pack_into(data, at, size & (1 << 8 * width) - 1)


_JSON = json.JSONDecoder()


def _places(content: Any) -> Iterator[tuple[Any, Any]]:
    """All values inside, each by its container and its key there."""
    pairs: Any = ()
    if isinstance(content, dict):
        pairs = content.items()
    elif isinstance(content, list):
        pairs = enumerate(content)
    for key, value in pairs:
        yield content, key
        yield from _places(value)
