"""Who guesses has to wait, and harms nobody else by it."""

from headwater.identity.attempts import FREE_ATTEMPTS, LONGEST_WAIT, Attempts


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def fail(attempts: Attempts, address: str, name: str, times: int) -> None:
    for _ in range(times):
        attempts.failed(address, name)


def test_waits_grow() -> None:
    clock = Clock()
    attempts = Attempts(clock)
    fail(attempts, "a", "n", FREE_ATTEMPTS - 1)
    assert attempts.wait_for("a", "n") == 0
    waits = []
    for _ in range(12):
        attempts.failed("a", "n")
        waits.append(attempts.wait_for("a", "n"))
    assert waits[:4] == [1, 2, 4, 8]
    assert max(waits) == LONGEST_WAIT
    clock.now += LONGEST_WAIT
    assert attempts.wait_for("a", "n") == 0
    assert attempts.refused == 12


def test_one_address_cannot_try_many_names_nor_many_addresses_one_name() -> None:
    attempts = Attempts(Clock())
    for number in range(FREE_ATTEMPTS):
        attempts.failed("a", f"n{number}")
        attempts.failed(f"a{number}", "n")
    assert attempts.wait_for("a", "another") > 0
    assert attempts.wait_for("elsewhere", "n") > 0
    assert attempts.wait_for("elsewhere", "another") == 0


def test_who_was_here_before_is_not_locked_out_by_others() -> None:
    attempts = Attempts(Clock())
    attempts.succeeded("home", "alice")
    fail(attempts, "attacker", "alice", 100)
    fail(attempts, "home", "bob", 100)
    assert attempts.wait_for("attacker", "alice") > 0
    assert attempts.wait_for("home", "bob") > 0
    assert attempts.wait_for("home", "alice") == 0
    fail(attempts, "home", "alice", FREE_ATTEMPTS)
    assert attempts.wait_for("home", "alice") > 0


def test_those_who_give_no_name_wait_where_they_failed_and_nowhere_else() -> None:
    attempts = Attempts(Clock())
    fail(attempts, "a", "", FREE_ATTEMPTS)
    assert attempts.wait_for("a", "") > 0
    assert attempts.wait_for("elsewhere", "") == 0
    assert attempts.wait_for("a", "alice") == 0
    fail(attempts, "a", "alice", FREE_ATTEMPTS)
    fail(attempts, "b", "alice", FREE_ATTEMPTS)
    assert attempts.wait_for("b", "alice") > 0
    assert attempts.wait_for("b", "") == 0


def test_it_is_forgotten_after_a_while() -> None:
    clock = Clock()
    attempts = Attempts(clock)
    fail(attempts, "a", "n", 50)
    clock.now += 2 * 3600
    attempts.failed("a", "n")
    assert attempts.wait_for("a", "n") == 0
