"""Masking, borrowed from the package `websockets`."""

import pytest

from headwater.errors import HeadwaterError
from headwater.protocols.websocket import masking


def test_the_package_is_as_we_know_it() -> None:
    masking.check()


def test_masking_twice_gives_the_data_back() -> None:
    data, key = bytes(range(256)), b"\x12\x34\x56\x78"
    masked = masking.apply_mask(data, key)
    assert masked == bytes(byte ^ key[index % 4] for index, byte in enumerate(data))
    assert masking.apply_mask(masked, key) == data


@pytest.mark.parametrize("other", [lambda data: data, lambda data, mask: data])
def test_another_function_is_a_sentence(monkeypatch: pytest.MonkeyPatch, other: object) -> None:
    monkeypatch.setattr(masking, "apply_mask", other)
    with pytest.raises(HeadwaterError, match=r"apply_mask.* does not mask; install websockets=="):
        masking.check()
