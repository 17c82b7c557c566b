"""users.json knows when it was damaged."""

import json
from pathlib import Path

import pytest

from headwater.errors import HeadwaterError
from headwater.identity.users import FILE, Users


@pytest.fixture
def users(tmp_path: Path) -> Users:
    users = Users(tmp_path / FILE)
    users.add("alice", "operator")
    users.add_token("alice")
    return users


def test_a_flipped_bit_is_refused(users: Users, tmp_path: Path) -> None:
    content = (tmp_path / FILE).read_bytes()
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 1
        (tmp_path / FILE).write_bytes(damaged)
        try:
            found = users.all()
        except HeadwaterError as error:
            assert "damaged" in str(error)
        else:  # white space
            assert list(found) == ["alice"] and json.loads(damaged) == json.loads(content)


def test_a_file_without_a_checksum_is_taken_and_gets_one(users: Users, tmp_path: Path) -> None:
    """Of an earlier version, or of someone who has changed it by hand."""
    content = json.loads((tmp_path / FILE).read_bytes())
    del content["$crc32c"]
    (tmp_path / FILE).write_text(json.dumps(content))
    assert list(users.all()) == ["alice"]
    users.add("bob", "viewer")
    assert "$crc32c" in json.loads((tmp_path / FILE).read_bytes())
