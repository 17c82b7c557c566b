"""What the event loop does with its time."""

import time
from collections.abc import Iterator
from pathlib import Path

from headwater.admin import loop
from headwater.admin.alerts import Alerts, Thresholds
from headwater.admin.loop import LoopWatch
from headwater.admin.queues import QueueHandlers
from headwater.admin.topics import TopicHandlers
from headwater.slowing import LOG, REASONS
from tests.transport.stand import TurnStand, run, until


def test_a_loop_that_is_held_up_is_late(tmp_path: Path) -> None:
    async def check(stand: TurnStand) -> None:
        watch = LoopWatch(stand.broker, stand.connections)
        watch.start()
        time.sleep(2 * loop.PROBE_SECONDS)
        await until(lambda: sum(watch.lag.counts) > 0)
        longest = watch.overview()["lag_ms_longest"]
        assert longest >= 0.9 * loop.PROBE_SECONDS * 1000
        assert watch.metrics()["lag_longest"] * 1000 >= 0.9 * longest
        watch.stop()

    run(tmp_path, check)


def test_samples_say_how_busy_it_is_and_how_long_turns_are(tmp_path: Path) -> None:
    async def check(stand: TurnStand) -> None:
        watch = LoopWatch(stand.broker, stand.connections)
        watch.start()
        client = await stand.client()
        while not watch.overview()["turns_per_second"]:
            client.answers = 0
            client.send(client.publish("t", b"x", ack=True))
            await client.read_until(lambda wire: wire.answers == 1)
        seen = watch.overview()
        assert 0 < seen["busy"] <= 1
        assert seen["writes_per_second"] > 0
        assert 0 < seen["turn_ms_p50"] <= seen["turn_ms_p99"]
        watch.stop()

    run(tmp_path, check)


def test_chores_take_a_part_of_the_loop(tmp_path: Path) -> None:
    async def check(stand: TurnStand) -> None:
        chores, done = stand.broker.chores, False

        def chore() -> Iterator[None]:
            nonlocal done
            yield
            done = True

        assert chores.seconds == 0.0
        chores.add(chore())
        await until(lambda: done)
        watch = LoopWatch(stand.broker, stand.connections)
        assert watch.metrics()["chores_seconds"] == chores.seconds > 0

    run(tmp_path, check)


def test_reasons_are_there_before_anyone_is_slowed(tmp_path: Path) -> None:
    async def check(stand: TurnStand) -> None:
        watch = LoopWatch(stand.broker, stand.connections)
        assert [each["reason"] for each in watch.overview()["slowed"]] == list(REASONS)
        await stand.client()
        (connection,) = stand.connections.open.values()
        connection.pause(LOG)
        found = {each["reason"]: each["connections"] for each in watch.metrics()["slowed"]}
        assert found == {**dict.fromkeys(REASONS, 0), LOG: 1}

    run(tmp_path, check)


def alerts_of(
    stand: TurnStand, watch: LoopWatch, data: Path, thresholds: Thresholds
) -> dict[str, str]:
    queues = QueueHandlers(stand.broker, lambda name: None, TopicHandlers(stand.broker))
    alerts = Alerts(
        broker=stand.broker,
        connections=stand.connections,
        queues=queues,
        loop=watch,
        data=data,
        thresholds=thresholds,
    )
    return {each["kind"]: each["message"] for each in alerts.current()}


def test_an_alert_for_a_loop_that_is_often_late(tmp_path: Path) -> None:
    async def check(stand: TurnStand) -> None:
        watch = LoopWatch(stand.broker, stand.connections)
        for _ in range(loop.ENOUGH_PROBES - 1):
            watch.lag.add(0.2)
        assert "lag" not in alerts_of(stand, watch, tmp_path, Thresholds()), "it has just started"
        watch.lag.add(0.2)
        assert "late by 200 ms" in alerts_of(stand, watch, tmp_path, Thresholds())["lag"]
        for _ in range(loop.MINUTE_PROBES):
            watch.lag.add(0.001)
        assert "lag" not in alerts_of(stand, watch, tmp_path, Thresholds())

    run(tmp_path, check)


def test_an_alert_for_a_client_that_leaves_no_time_to_others(tmp_path: Path) -> None:
    async def check(stand: TurnStand) -> None:
        watch = LoopWatch(stand.broker, stand.connections)
        client = await stand.client()
        (connection,) = stand.connections.open.values()
        connection.meter.share, connection.meter.over_half_since = 0.8, 1e-6
        strict = Thresholds(greedy_busy=0.0)
        message = alerts_of(stand, watch, tmp_path, strict)["greedy"]
        port = client.socket.getsockname()[1]
        assert f"127.0.0.1:{port}" in message and "80%" in message
        idle = Thresholds(greedy_busy=1.1)
        assert "greedy" not in alerts_of(stand, watch, tmp_path, idle), "there is time for everyone"
        connection.meter.over_half_since = stand.connections.clock.time()
        assert "greedy" not in alerts_of(stand, watch, tmp_path, strict), "not for long"

    run(tmp_path, check)
