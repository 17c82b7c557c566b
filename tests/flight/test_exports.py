"""What the audit trail is told of those who read over Flight."""

from typing import Any

from headwater.flight import exports
from headwater.flight.exports import MOST_ASKED, MOST_READERS, TELL_SECONDS, Exports
from headwater.flight.requests import Read
from headwater.rights import Principal
from tests.flight.stand import caller_of

ALICE = caller_of("alice")
PATTERN = Read(0, 10, pattern="a/.*")


class Trail:
    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.exports = Exports(self._tell)

    def _tell(self, who: Principal, about: dict[str, Any]) -> None:
        self.told.append((str(who), about))

    def take(self) -> list[tuple[str, dict[str, Any]]]:
        told, self.told = self.told, []
        return told


def test_who_begins_to_read_is_told_at_once() -> None:
    trail = Trail()
    trail.exports.begin(ALICE, PATTERN, 0.0)
    asked = {"start": 0, "end": 10, "pattern": "a/.*"}
    assert trail.take() == [("user:alice", {"from": "192.0.2.1", "with": asked})]
    # Not again, from another connection of the same address.
    trail.exports.begin(caller_of("alice", 5001), PATTERN, 1.0)
    assert not trail.take()
    trail.exports.begin(caller_of("bob"), Read(5, 6, topics=["x", "y"]), 2.0)
    asked = {"start": 5, "end": 6, "topics": ["x", "y"]}
    assert trail.take() == [("user:bob", {"from": "192.0.2.1", "with": asked})]


def test_a_range_without_offsets_is_no_read() -> None:
    trail = Trail()
    trail.exports.begin(ALICE, Read(7, 7), 0.0)
    assert not trail.take()


def test_who_goes_on_is_told_now_and_then_with_all_it_has_read() -> None:
    trail = Trail()
    for number in range(100):
        request = Read(number, number + 1, pattern="a" if number % 2 else "b")
        trail.exports.begin(ALICE, request, float(number))
        trail.exports.sent(ALICE, request, 2, 50, float(number))
    trail.exports.look(TELL_SECONDS - 1)
    assert len(trail.take()) == 1
    trail.exports.look(TELL_SECONDS)
    ((who, about),) = trail.take()
    assert who == "user:alice"
    assert about == {
        "from": "192.0.2.1",
        "with": {"start": 0, "end": 100},
        "reads": 100,
        "messages": 200,
        "bytes": 5000,
        "asked": [{"pattern": "b"}, {"pattern": "a"}],
    }
    # It reads on, in the stream that it has.
    trail.exports.sent(ALICE, Read(99, 300), 1, 25, TELL_SECONDS + 1)
    trail.exports.look(2 * TELL_SECONDS - 1)
    assert not trail.take()
    trail.exports.look(2 * TELL_SECONDS)
    ((_, about),) = trail.take()
    assert (about["reads"], about["messages"], about["with"]) == (0, 1, {"start": 99, "end": 300})


def test_who_was_quiet_begins_anew() -> None:
    trail = Trail()
    trail.exports.begin(ALICE, PATTERN, 0.0)
    for number in range(1, 5):
        trail.exports.look(number * TELL_SECONDS)
    assert len(trail.take()) == 2  # that it began, and what there was of it
    trail.exports.begin(ALICE, PATTERN, 5 * TELL_SECONDS)
    ((_, about),) = trail.take()
    assert about["with"]["pattern"] == "a/.*"


def test_at_the_end_all_is_told() -> None:
    trail = Trail()
    trail.exports.begin(ALICE, PATTERN, 0.0)
    trail.exports.sent(ALICE, PATTERN, 3, 30, 1.0)
    trail.take()
    trail.exports.end()
    ((_, about),) = trail.take()
    assert (about["reads"], about["messages"], about["bytes"]) == (1, 3, 30)
    trail.exports.end()
    assert not trail.take()


def test_of_very_many_readers_some_are_told_early_and_none_is_forgotten() -> None:
    trail = Trail()
    many = MOST_READERS + 10
    for number in range(many):
        caller = caller_of(f"u{number}")
        trail.exports.begin(caller, PATTERN, 0.0)
        trail.exports.sent(caller, PATTERN, 1, 10, 0.0)
    assert len(trail.take()) == many + 10
    trail.exports.end()
    assert sum(about["messages"] for _, about in trail.take()) == MOST_READERS


def test_what_was_asked_for_is_told_in_few_words() -> None:
    trail = Trail()
    topics = [f"{number}" * 1000 for number in range(100)]
    trail.exports.begin(ALICE, Read(0, 1, topics=topics), 0.0)
    ((_, about),) = trail.take()
    assert about["with"]["topics"] == [topic[:200] for topic in topics[:10]]
    assert about["with"]["further_topics"] == 90
    for number in range(MOST_ASKED - 1):
        trail.exports.begin(ALICE, Read(0, 1, pattern=f"{number}" * 1000), 0.0)
    trail.exports.begin(ALICE, Read(0, 1, pattern="0" * 1000), 0.0)
    trail.exports.look(TELL_SECONDS)
    ((_, about),) = trail.take()
    assert "others" not in about
    assert about["asked"][1] == {"pattern": "0" * exports.MOST_CHARACTERS}
    for number in range(MOST_ASKED + 1):
        trail.exports.begin(ALICE, Read(0, 1, pattern=str(number)), TELL_SECONDS)
    trail.exports.end()
    ((_, about),) = trail.take()
    assert about["others"] is True
    assert len(about["asked"]) == MOST_ASKED
