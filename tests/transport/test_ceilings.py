"""Claims on memory that connections share."""

from hypothesis import given
from hypothesis import strategies as st

from headwater.slowing import MEMORY
from headwater.transport.ceilings import UNCLAIMED_BYTES, InputCeiling, OutputCeiling

LARGE = UNCLAIMED_BYTES + 1


class Sender:
    def __init__(self) -> None:
        self.held: set[str] = set()

    def pause(self, why: str) -> None:
        self.held.add(why)

    def resume(self, why: str) -> None:
        self.held.discard(why)


def test_who_finds_no_room_waits_in_the_order_of_coming() -> None:
    ceiling = InputCeiling(2 * LARGE)
    first, second, third, fourth = (Sender() for _ in range(4))
    for each in (first, second, third, fourth):
        ceiling.claim(each, LARGE)
    assert [bool(each.held) for each in (first, second, third, fourth)] == [False] * 2 + [True] * 2
    assert ceiling.waiting == 2
    ceiling.claim(second, 0)
    assert not third.held and fourth.held == {MEMORY}
    ceiling.claim(fourth, 0)  # it has gone
    ceiling.claim(first, 0)
    ceiling.claim(third, 0)
    assert (ceiling.total, ceiling.waiting) == (0, 0)


def test_a_message_larger_than_the_ceiling_comes_alone() -> None:
    ceiling = InputCeiling(LARGE)
    large, other = Sender(), Sender()
    ceiling.claim(large, 10 * LARGE)
    assert not large.held
    ceiling.claim(other, LARGE)
    assert other.held
    ceiling.claim(large, 0)
    assert not other.held


def test_small_ones_need_no_room() -> None:
    ceiling = InputCeiling(LARGE)
    ceiling.claim(Sender(), LARGE)
    small = Sender()
    ceiling.claim(small, UNCLAIMED_BYTES)
    assert not small.held and ceiling.total == LARGE


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from([0, 1, LARGE, 2 * LARGE, 9 * LARGE])),
        max_size=60,
    )
)
def test_nobody_waits_when_there_is_room(steps: list[tuple[int, int]]) -> None:
    ceiling, senders = InputCeiling(4 * LARGE), [Sender() for _ in range(5)]
    wants = [0] * 5
    for number, size in steps:
        if not senders[number].held or size == 0:  # who is held sends nothing, but may leave
            ceiling.claim(senders[number], size)
            wants[number] = size if size > UNCLAIMED_BYTES else 0
        if size == 0:
            senders[number].held.clear()
        granted = [size for size, each in zip(wants, senders, strict=True) if not each.held]
        assert ceiling.total == sum(granted)
        assert ceiling.total <= 4 * LARGE or sum(map(bool, granted)) == 1
        assert ceiling.total or not ceiling.waiting


def test_full_buffers_share() -> None:
    ceiling = OutputCeiling(limit=1000, each=400)
    assert ceiling.share == 400
    ceiling.add(2)
    assert ceiling.share == 400
    ceiling.add(8)
    assert ceiling.share == 100
    ceiling.add(-8)
    assert ceiling.share == 400
