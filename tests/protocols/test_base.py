"""How bytes become frames in bulk: `Intake` and `alike`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.protocols.bulk import Intake, alike
from tests.protocols.helpers import memory_kept, pieces, seconds, sizes


def count_one_by_one(data: bytes, position: int, header: bytes, size: int) -> int:
    """What `alike` means."""
    count = 0
    step = len(header) + size
    while data[position:].startswith(header) and position + step <= len(data):
        count += 1
        position += step
    return count


@pytest.mark.property
@given(
    before=st.binary(max_size=5),
    header=st.text("ab", min_size=1, max_size=6).map(str.encode),
    size=st.integers(0, 5),
    # Runs longer than the first attempts, and headers that differ in any place.
    count=st.integers(0, 200),
    broken=st.none() | st.integers(0, 2000),
    after=st.text("ab", max_size=20).map(str.encode),
)
def test_alike_counts_like_a_loop(
    before: bytes, header: bytes, size: int, count: int, broken: int | None, after: bytes
) -> None:
    data = bytearray(before + (header + b"b" * size) * count + after)
    if broken is not None and broken < len(data):
        data[broken] ^= 3
    expected = count_one_by_one(bytes(data), len(before), header, size)
    assert alike(bytes(data), len(before), header, size) == expected


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 79, 80, 81, 335, 336, 337])
@pytest.mark.parametrize("size", [0, 1, 100])
def test_alike_at_the_edges_of_its_attempts(count: int, size: int) -> None:
    run = b"".join(b"HD" + bytes([index % 251]) * size for index in range(count))
    for end in (b"", b"H", b"HX", b"HD" + b"x" * (size - 1) if size else b"HX"):
        assert alike(run + end, 0, b"HD", size) == count


@pytest.mark.property
@given(frames=st.lists(st.binary(max_size=60), max_size=20), cut=sizes)
def test_an_intake_keeps_every_byte_in_order(frames: list[bytes], cut: list[int]) -> None:
    """A reader of frames with their length in front sees the same frames, however they are cut."""
    stream = b"".join(bytes([len(frame)]) + frame for frame in frames)
    intake = Intake()
    found = []
    for piece in pieces(stream, cut):
        data = intake.take(piece)
        position = 0
        while position < len(data):
            end = position + 1 + data[position]
            if end > len(data):
                intake.keep(data[position:], end - position)
                break
            found.append(data[position + 1 : end])
            position = end
    assert found == frames


def test_an_intake_gives_nothing_while_more_is_needed() -> None:
    intake = Intake()
    assert intake.take(b"ab") == b"ab"
    intake.keep(b"ab", 5)
    assert intake.take(b"c") == b""
    assert intake.take(b"d") == b""
    assert intake.take(b"efg") == b"abcdefg"
    assert intake.take(b"h") == b"h"


def test_a_frame_in_small_pieces_is_joined_once() -> None:
    def assemble() -> None:
        intake = Intake()
        intake.keep(b"x", 16 << 20)
        while not intake.take(bytes(100)):
            pass

    # Joining at each piece would copy 1.4 TB.
    assert seconds(assemble) < 2


def test_tiny_pieces_cost_no_more_memory_than_large_ones() -> None:
    """A client chooses how its bytes are cut; an object for two bytes takes twenty times as much
    as they do, so a limit on a message would not be a limit on memory."""
    count = 50_000

    def assemble() -> Intake:
        intake = Intake()
        intake.keep(b"x", 16 << 20)
        for index in range(count):
            intake.take(index.to_bytes(2, "big"))
        return intake

    assert memory_kept(assemble) < 4 * 2 * count + 100_000
