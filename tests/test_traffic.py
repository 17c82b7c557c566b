"""Counting what goes in and out."""

from headwater.traffic import Meter, Traffic


def counts(traffic: Traffic) -> tuple[int, int, int, int]:
    return traffic.messages_in, traffic.bytes_in, traffic.messages_out, traffic.bytes_out


def test_what_connections_count_is_poured_into_one_sum() -> None:
    total, one, two = Traffic(), Meter(), Meter()
    one.bytes_in += 10
    one.messages_in += 2
    two.bytes_out += 53
    two.messages_out += 4
    for meter in (one, two):
        meter.sample(1.0, total)
    assert counts(total) == (2, 10, 4, 53)
    one.bytes_in += 5
    one.sample(2.0, total)
    two.sample(2.0, total)
    two.pour(total)
    assert counts(total) == (2, 15, 4, 53), "nothing is poured twice"
    assert counts(one) == (2, 15, 0, 0)


def test_messages_of_bytes_that_came_before_are_poured() -> None:
    """What a connection sends at once is worked off in slices."""
    meter, total = Meter(), Traffic()
    meter.bytes_in += 100
    meter.sample(1.0, total)
    meter.messages_in += 10
    meter.sample(2.0, total)
    assert counts(total) == (10, 100, 0, 0)


def test_rates_are_between_two_samples() -> None:
    meter, total = Meter(), Traffic()
    meter.bytes_in += 100
    meter.sample(1.0, total)
    assert meter.rate_in == 0.0
    meter.bytes_in += 100
    meter.bytes_out += 10
    meter.sample(3.0, total)
    assert (meter.rate_in, meter.rate_out) == (50.0, 5.0)
    meter.sample(4.0, total)
    assert (meter.rate_in, meter.rate_out) == (0.0, 0.0)


def test_the_share_of_the_loop_is_between_two_samples() -> None:
    meter, total = Meter(), Traffic()
    meter.seconds += 5.0
    meter.sample(10.0, total)
    assert (meter.share, meter.over_half_since) == (0.0, 0.0)
    for second in (11.0, 12.0):
        meter.seconds += 0.75
        meter.sample(second, total)
        assert (meter.share, meter.over_half_since) == (0.75, 10.0)
    meter.seconds += 0.25
    meter.sample(13.0, total)
    assert (meter.share, meter.over_half_since) == (0.25, 0.0)
