"""The watchdog, the ticker's pace and the log clock: pure, with a clock of the test's own."""

from __future__ import annotations

import asyncio

from schemas.records import Tick
from streams.log_clock import LogClock
from streams.metrics import Metrics
from streams.ticker import Ticker
from streams.watchdog import Sight, Watchdog


def test_rule11_lag_without_progress_fails() -> None:
    dog = Watchdog(stall_after_s=60, image_within_s=180)
    dog.look(0, {0: Sight(next=10, end=20, image_at=9)})
    dog.look(59, {0: Sight(next=10, end=30, image_at=9)})
    assert dog.why == ""
    dog.look(61, {0: Sight(next=10, end=30, image_at=9)})
    assert "stands at 10" in dog.why
    assert dog.failing_s(81) == 20
    dog.look(90, {0: Sight(next=11, end=30, image_at=9)})
    assert dog.why == ""
    assert dog.failing_s(100) == 0


def test_nothing_to_do_is_no_stall() -> None:
    dog = Watchdog(60, 180)
    for now in range(0, 1_000, 10):
        dog.look(now, {0: Sight(next=10, end=10, image_at=9)})
        assert dog.why == ""


def test_progress_without_images_fails_too() -> None:
    dog = Watchdog(60, 180)
    for now in range(0, 200, 10):
        dog.look(now, {0: Sight(next=10 + now, end=1_000, image_at=5)})
    assert "no new image" in dog.why


def test_time_while_the_broker_cannot_be_asked_does_not_count() -> None:
    dog = Watchdog(60, 180)
    dog.look(0, {0: Sight(next=10, end=20, image_at=9)})
    dog.pause(500)
    dog.look(559, {0: Sight(next=10, end=20, image_at=9)})
    assert dog.why == ""


def test_a_stopped_partition_fails_at_once_and_a_lost_one_is_forgotten() -> None:
    dog = Watchdog(60, 180)
    dog.look(0, {3: Sight(next=10, end=20, image_at=9, stopped=True)})
    assert "stopped by a bug after offset 9" in dog.why
    dog.look(1, {})
    assert dog.why == ""


async def test_ticks_keep_a_monotonic_pace_staggered_by_partition() -> None:
    written: list[tuple[float, int]] = []
    now = 1_000.4
    open_partitions = {0: 1_000, 1: 1_000}

    async def write(tick: Tick) -> None:
        written.append((now, tick.partition))

    ticker = Ticker(7, 2, lambda: open_partitions, lambda _p: {"acks/0": 3}, write, Metrics())
    while now < 1_010:
        ticker.tick_due(now)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        now += 0.05
    for partition in (0, 1):
        times = [at for at, p in written if p == partition]
        assert 10 <= len(times) <= 11
        steady = times[1:]
        assert all(0.5 <= b - a <= 1.5 for a, b in zip(times, steady, strict=False))
        assert all(abs(at % 1.0 - partition / 2) < 0.06 for at in steady)
    del open_partitions[0]
    before = len(written)
    for _ in range(40):
        ticker.tick_due(now)
        await asyncio.sleep(0)
        now += 0.05
    assert {p for _, p in written[before:]} == {1}, "only the owner with an open gate writes"


async def test_late_ticks_are_one_and_counted_as_missed() -> None:
    written: list[int] = []
    metrics = Metrics()

    async def write(tick: Tick) -> None:
        written.append(tick.partition)

    ticker = Ticker(7, 1, lambda: {0: 1_000}, lambda _p: {}, write, metrics)
    for now in (100.0, 101.0, 108.5):
        ticker.tick_due(now)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert written == [0, 0, 0]
    assert metrics.value("ticks_missed_total") == 6


def test_the_log_clock_never_runs_ahead_and_follows_a_clock_set_back() -> None:
    clock = LogClock()
    assert clock.now_ms(1.0) is None
    clock.saw(10_000, 1.0)  # appended at 10,000, known at 1.0 s
    clock.saw(10_950, 2.0)  # this answer took 50 ms longer
    assert clock.now_ms(3.0) == 12_000
    for i in range(64):
        clock.saw(5_000 + 1_000 * i, 4.0 + i)
    assert clock.now_ms(68.0) == 69_000
