"""What certificates say, and when a keyring takes new ones."""

import datetime
import os
import time
from pathlib import Path

import pytest

from headwater.errors import ConfigError
from headwater.tls import Keyring, TlsFiles
from headwater.tls.certificates import expiry_of
from tests.tls.certificates import Authority, Signed

FIXED = Path(__file__).parent.parent / "e2e" / "tls" / "certificate.pem"
DAY = 86400


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def keyring_of(pair: Signed) -> Keyring:
    return Keyring("here", TlsFiles(certificate=pair.certificate, key=pair.key))


def test_when_a_certificate_expires(authority: Authority) -> None:
    short, long = authority.server(days=3), authority.server(days=20_000)  # beyond 2049
    assert expiry_of(short.certificate.read_text()) == pytest.approx(time.time() + 3 * DAY, abs=60)
    assert expiry_of(long.certificate.read_text()) == pytest.approx(
        time.time() + 20_000 * DAY, abs=60
    )
    chain = short.certificate.read_text() + authority.certificate.read_text()
    assert expiry_of("a comment\n" + chain) == expiry_of(short.certificate.read_text())
    assert datetime.date.fromtimestamp(expiry_of(FIXED.read_text())).year > 2026


@pytest.mark.parametrize(
    "text", ["", "nothing", "-----BEGIN CERTIFICATE-----\nMAMCAQ==\n-----END CERTIFICATE-----"]
)
def test_what_is_no_certificate(text: str) -> None:
    with pytest.raises(ValueError):
        expiry_of(text)


def test_operators_are_told_two_weeks_before(authority: Authority) -> None:
    assert keyring_of(authority.server(days=15)).warning() is None
    assert "expires in 13 days" in str(keyring_of(authority.server(days=13)).warning())
    assert "has expired" in str(keyring_of(authority.server(days=-1)).warning())


def test_files_that_changed_are_taken_when_they_have_come_to_rest(
    authority: Authority, tmp_path: Path
) -> None:
    first, second = authority.server(days=20), authority.server(days=25)
    used = Signed(tmp_path / "certificate.pem", tmp_path / "key.pem")
    used.replace(first)
    keyring = keyring_of(used)
    context, expires = keyring.context, keyring.expires
    assert not keyring.look()
    used.replace(second)
    assert not keyring.look()
    assert keyring.look()
    assert keyring.context is not context
    assert keyring.expires - expires == pytest.approx(5 * DAY, abs=60)
    assert not keyring.look()


def test_a_pair_that_does_not_fit_is_not_taken(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = authority.server(), authority.server()
    used = Signed(tmp_path / "certificate.pem", tmp_path / "key.pem")
    used.replace(first)
    keyring = keyring_of(used)
    context = keyring.context
    used.replace(Signed(second.certificate, first.key))
    assert not any(keyring.look() for _ in range(5))
    assert (keyring.context, caplog.text.count("KEY_VALUES_MISMATCH")) == (context, 1)
    assert "KEY_VALUES_MISMATCH; the one before is still used" in str(keyring.warning())
    os.unlink(used.key)
    assert not any(keyring.look() for _ in range(5))
    assert "No such file" in str(keyring.warning())
    used.replace(second)
    assert [keyring.look(), keyring.look()] == [False, True]
    assert keyring.warning() is None


def test_a_key_with_a_password_is_refused(authority: Authority) -> None:
    pair = authority.server()
    locked = authority.locked(pair, "a password")
    with pytest.raises(ConfigError, match="cannot be used"):
        keyring_of(locked)


def test_authorities_that_cannot_be_read(authority: Authority, tmp_path: Path) -> None:
    pair, none = authority.server(), tmp_path / "none.pem"
    with pytest.raises(ConfigError, match=r"none\.pem, for those of clients, cannot be used: No "):
        Keyring("x", TlsFiles(certificate=pair.certificate, key=pair.key, client_ca=none))
