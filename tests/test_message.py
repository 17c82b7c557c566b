"""Runs, batches, and payloads that stay where they arrived."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.message import Batch, Run, Tiles


def test_a_run_knows_its_size() -> None:
    run = Run("a", [b"1", b"", b"333"], protocol="psmb")
    assert (len(run), run.size) == (3, 4)
    assert (run.publisher, run.headers) == ("", ())
    assert repr(run) == "Run('a', 3 payloads, 4 bytes)"


def test_runs_do_not_share_what_was_built_for_subscribers() -> None:
    one, other = Run("a", [b"1"], protocol="psmb"), Run("a", [b"1"], protocol="psmb")
    one.remember("x", b"bytes")
    assert (one.recall("x"), other.recall("x")) == (b"bytes", None)


def test_a_run_keeps_the_bytes_of_a_few_kinds_of_subscribers() -> None:
    run = Run("a", [b"1"], protocol="psmb")
    for variant in range(20):
        assert run.remember(variant, b"%d" % variant) == b"%d" % variant
        assert run.recall(variant) == b"%d" % variant
    assert run.recall(0) == b"0"
    assert sum(run.recall(variant) is not None for variant in range(20)) <= 4


def test_a_batch_ends_behind_its_last_message() -> None:
    batch = Batch(40, 7, Run("a", [b"1", b"2"], protocol="psmb"))
    assert (batch.offset, batch.end, batch.timestamp) == (40, 42, 7)
    assert "40..42" in repr(batch)


@pytest.mark.property
@given(
    offset=st.integers(0, 2**62),
    payloads=st.lists(st.binary(max_size=5), min_size=1, max_size=8),
    data=st.data(),
)
def test_since_leaves_out_what_came_before(
    offset: int, payloads: list[bytes], data: st.DataObject
) -> None:
    run = Run("a", payloads, protocol="bpsp", publisher="bob", headers=(("k", "v"),))
    batch = Batch(offset, 7, run)
    start = data.draw(st.integers(0, offset + len(payloads)))
    rest = batch.since(start)
    assert rest.offset == max(start, offset)
    assert rest.end == batch.end
    assert list(rest.run.payloads) == payloads[rest.offset - offset :]
    assert (rest.timestamp, rest.run.topic, rest.run.protocol) == (7, "a", "bpsp")
    assert (rest.run.publisher, rest.run.headers) == ("bob", (("k", "v"),))


def test_since_does_not_reuse_bytes_that_were_built_for_all_messages() -> None:
    batch = Batch(40, 7, Run("a", [b"1", b"2"], protocol="psmb"))
    batch.run.remember("psmb", b"both")
    assert batch.since(40) is batch
    assert batch.since(41).run.recall("psmb") is None


# Tiles

bodies = st.integers(0, 4).flatmap(
    lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=6)
)


def tiles(payloads: list[bytes], header: bytes = b"HEAD") -> Tiles:
    return Tiles(b"".join(header + each for each in payloads), len(header), len(payloads[0]))


@pytest.mark.property
@given(payloads=bodies, header=st.binary(min_size=1, max_size=3), data=st.data())
def test_tiles_are_a_list_of_their_payloads(
    payloads: list[bytes], header: bytes, data: st.DataObject
) -> None:
    tiled = tiles(payloads, header)
    assert list(tiled) == payloads
    assert len(tiled) == len(payloads)
    assert tiled == payloads
    index = data.draw(st.integers(-len(payloads), len(payloads) - 1))
    assert tiled[index] == payloads[index]
    cut = data.draw(st.slices(len(payloads)))
    assert list(tiled[cut]) == payloads[cut]
    assert tiled[cut] == payloads[cut]


@pytest.mark.property
@given(payloads=bodies, data=st.data())
def test_a_run_of_tiles_is_a_run(payloads: list[bytes], data: st.DataObject) -> None:
    one, other = (Run("a", each, protocol="psmb") for each in (payloads, tiles(payloads)))
    assert (len(one), one.size, one.weight) == (len(other), other.size, other.weight)
    start = data.draw(st.integers(0, len(payloads)))
    assert Batch(0, 0, one).since(start).run.payloads == payloads[start:]
    assert Batch(0, 0, other).since(start).run.payloads == payloads[start:]


@pytest.mark.parametrize("index", [3, -4, 100])
def test_tiles_end_like_a_list(index: int) -> None:
    with pytest.raises(IndexError):
        tiles([b"a", b"b", b"c"])[index]
