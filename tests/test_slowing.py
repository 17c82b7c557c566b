"""Counting who was slowed, for how long and why."""

from headwater.slowing import ANSWERS, COST, LOG, REASONS, Slowdown, Slowdowns


def test_a_slowdown_has_a_length_while_it_lasts() -> None:
    slowdown = Slowdown()
    slowdown.begin(10.0)
    assert (slowdown.times, slowdown.now, slowdown.seconds(12.0)) == (1, 1, 2.0)
    slowdown.end(13.0)
    assert (slowdown.now, slowdown.seconds(20.0)) == (0, 3.0)
    slowdown.begin(20.0)
    assert (slowdown.times, slowdown.seconds(21.0)) == (2, 4.0)


def test_a_sample_says_what_part_of_the_time_it_was() -> None:
    slowdown = Slowdown()
    slowdown.begin(10.0)
    slowdown.sample(10.5, 1.0)
    assert slowdown.share == 0.5
    slowdown.sample(12.5, 2.0)
    assert slowdown.share == 1.0
    slowdown.end(12.5)
    slowdown.sample(13.5, 1.0)
    assert slowdown.share == 0.0


def test_those_of_one_connection_are_counted_for_everyone() -> None:
    everyone = Slowdowns()
    one, other = Slowdowns(everyone), Slowdowns(everyone)
    one.begin(LOG)
    one.begin(LOG)  # it is slowed for that already
    other.begin(LOG)
    other.begin(ANSWERS)
    one.end(COST)  # it was not
    assert (everyone.of(LOG).now, everyone.of(LOG).times) == (2, 2)
    assert (one.of(LOG).times, one.now, other.now) == (1, True, True)
    one.end(LOG)
    other.end_all()
    other.end_all()
    assert (one.now, other.now, everyone.now) == (False, False, False)
    assert everyone.of(LOG).times == 2
    assert everyone.seconds >= one.seconds > 0


def test_every_reason_has_a_meaning() -> None:
    assert {COST, LOG, ANSWERS} < set(REASONS) and all(REASONS.values())
