"""Rules 3 to 7, 10, 11 on the real broker: kept partitions, side inputs, ticks, loss, watchdog."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest

from agents.log import LAW_VERSION, Entry, Output
from agents.state import PartitionState
from agents.step import step
from schemas import codec
from schemas.records import LEASE_KEY, LedgerEntry, Tick
from schemas.topics import full_name
from streams import engine, stages
from streams.checker import check
from streams.dev_broker import DevBroker
from streams.settings import WorkerSettings
from streams.topics_admin import create, installation_of
from streams.worker import Worker
from tests.streams.fleet_kit import (
    Fleet,
    WorkerProcess,
    delete_before,
    end,
    fleet,
    is_ready,
    log_ends,
    metric,
    read_all,
    sending,
    until,
)


@asynccontextmanager
async def running(worker: Worker) -> AsyncIterator[asyncio.Task[int]]:
    """A worker inside this process; stopped at the end, and its exit awaited."""
    task = asyncio.create_task(worker.run())
    try:
        yield task
    finally:
        worker.stop()
        await asyncio.wait([task], timeout=20)
        assert task.done(), "the worker does not stop"


def settings_of(one: Fleet, **more: Any) -> WorkerSettings:
    return WorkerSettings(
        one.bootstrap, one.prefix, image_interval_s=2.0, **{"stall_after_s": 60.0, **more}
    )


async def own_tick(one: Fleet, partition: int, side: dict[str, int], incarnation: int = 0) -> Tick:
    found = await installation_of(one.bootstrap, one.prefix)
    assert found is not None
    tick = Tick(partition, incarnation or found.incarnation, LAW_VERSION, side)
    await one.send("samples", None, codec.encode(tick), codec.TICK_HEADERS, partition)
    return tick


async def test_rule3_kept_partitions_keep_their_arena(
    broker: DevBroker, prefix: str, tmp_path: Path
) -> None:
    async with fleet(broker.bootstrap, prefix, partitions=4, nodes=12) as one:
        with WorkerProcess(broker.bootstrap, prefix, tmp_path / "a") as first:
            async with sending(one):
                await until(lambda: is_ready(first), 20, "ready")
                recovered = await metric(first, "recovery_seconds_count")
                assert recovered == 4
                with WorkerProcess(broker.bootstrap, prefix, tmp_path / "b") as second:

                    async def shared() -> bool:
                        mine = await metric(first, "gate_open")
                        return mine == 2 and await metric(second, "gate_open") == 2

                    await until(shared, 25, "two partitions each")
                    assert await metric(first, "seeks_total", why="kept") >= 2
                    assert await metric(first, "recovery_seconds_count") == recovered
                    assert await end(second) == 0
                await until(lambda: is_ready(first), 20, "alone again")

                async def all_back() -> bool:
                    return await metric(first, "gate_open") == 4

                await until(all_back, 20, "four again")
                assert await metric(first, "recovery_seconds_count") == recovered + 2
            assert await end(first) == 0
        verdict = await check(one.bootstrap, one.prefix)
        assert verdict.ok, verdict.as_json()


async def test_rule4_a_vector_not_read_yet_is_waited_for(broker: DevBroker, prefix: str) -> None:
    async with fleet(broker.bootstrap, prefix) as one:
        worker = Worker(settings_of(one))
        async with running(worker):
            await until(lambda: worker.port > 0 and not worker.why_not_ready(), 20, "ready")
            ledger = (await log_ends(one, "ledger"))[0]
            assert ledger == 0
            await own_tick(one, 0, {"ledger/0": 1})
            await one.round()
            await until(lambda: worker.engines[0].waiting, 10, "the engine waits")
            stands = worker.engines[0].at
            await until(lambda: worker.engines[1].at >= one.acknowledged[1], 10, "others go on")
            assert worker.engines[0].at == stands
            node = next(n.name for n in one.nodes if one.partition_of(n.name) == 0)
            for _ in range(2):
                entry = LedgerEntry(node, "k8s", 1_500, 0)
                await one.send("ledger", node.encode(), codec.encode(entry), codec.JSON_HEADERS)
            await until(lambda: worker.engines[0].at >= one.acknowledged[0], 10, "it goes on")
            state = worker.engines[0].state
            assert state is not None
            assert state.side["ledger/0"] == 1, "admitted by that very tick, not skipped"
            assert state.ledger[node]["k8s"] == (1_500, 0, 0, 0)
        verdict = await check(one.bootstrap, one.prefix)
        assert verdict.ok, verdict.as_json()


async def test_rule5_late_double_and_foreign_ticks(broker: DevBroker, prefix: str) -> None:
    async with fleet(broker.bootstrap, prefix) as one:
        worker = Worker(settings_of(one))
        async with running(worker):
            await until(lambda: worker.port > 0 and not worker.why_not_ready(), 20, "ready")
            for _ in range(20):
                await own_tick(one, 0, {})
            wrong = await own_tick(one, 1, {})
            await one.send("samples", None, codec.encode(wrong), codec.TICK_HEADERS, partition=0)
            await until(lambda: worker.engines[0].at + 1 >= one.acknowledged[0], 10, "all folded")
            ticks = worker.metrics.value("ticks_total", partition="0")
            await until(
                lambda: worker.metrics.value("ticks_total", partition="0") > ticks + 2, 10, "more"
            )
        leases = [
            orjson.loads(record.value)["cause"]
            for record in await read_all(one.bootstrap, full_name(prefix, "commands"), 2)
            if record.key == b"~lease" and record.partition == 0
        ]
        assert leases
        times = sorted(cause["log_ms"] for cause in leases)
        assert all(b - a >= 500 for a, b in pairwise(times)), "merged only"
        letters = await read_all(one.bootstrap, full_name(prefix, "dead-letters"), 1)
        assert [orjson.loads(r.value)["reason"] for r in letters] == ["unknown_partition"]
        verdict = await check(one.bootstrap, one.prefix)
        assert verdict.ok, verdict.as_json()


async def test_rule6_kill_9_of_one_of_two_workers(
    broker: DevBroker, prefix: str, tmp_path: Path
) -> None:
    async with fleet(broker.bootstrap, prefix) as one:
        with (
            WorkerProcess(broker.bootstrap, prefix, tmp_path / "a") as survivor,
            WorkerProcess(broker.bootstrap, prefix, tmp_path / "b") as victim,
        ):
            async with sending(one, 0.1):

                async def both() -> bool:
                    gates = await metric(survivor, "gate_open"), await metric(victim, "gate_open")
                    return gates == (1, 1)

                await until(both, 25, "one partition each")

                async def some() -> bool:
                    return await metric(victim, "folded_total") > 30

                await until(some, 10, "the victim has folded")
                victim.kill()

                async def alone() -> bool:
                    return await metric(survivor, "gate_open") == 2 and await is_ready(survivor)

                await until(alone, 30, "the survivor has both")
            assert await end(survivor) == 0
        verdict = await check(one.bootstrap, one.prefix)
        assert verdict.ok, verdict.as_json()
        assert verdict.records >= sum(offset + 1 for offset in one.acknowledged.values())


async def test_rule7_a_raising_handler_stops_its_partition_only(
    broker: DevBroker, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def faulty(state: PartitionState, batch: Sequence[Entry]) -> list[Output]:
        if state.partition == 0 and any(entry.offset >= 30 for entry in batch):
            raise ZeroDivisionError("staged")
        return step(state, batch)

    monkeypatch.setattr(engine, "step", faulty)
    async with fleet(broker.bootstrap, prefix) as one:
        worker = Worker(settings_of(one, stall_grace_s=3.0))
        async with running(worker) as task, sending(one, 0.1):
            await until(lambda: worker.port > 0 and bool(worker.why_not_live()), 30, "not live")
            assert "stopped by a bug" in worker.why_not_live()
            assert worker.metrics.value("bugs_total", partition="0") == 1
            stood, other = worker.engines[0].at, worker.engines[1].at
            await until(lambda: worker.engines[1].at > other + 5, 10, "the neighbour goes on")
            assert worker.engines[0].at == stood < 30
            await until(task.done, 15, "it exits after the grace")
            assert task.result() == 1


async def test_rule10_lost_images_hold_what_is_lent(broker: DevBroker, prefix: str) -> None:
    async with fleet(broker.bootstrap, prefix) as one:
        first = Worker(settings_of(one))
        async with running(first), sending(one, 0.1):
            await until(lambda: first.metrics.value("ticks_total", partition="0") >= 6, 20, "ticks")
        images, ends = await log_ends(one, "images"), await log_ends(one)
        await delete_before(one, "images", images)
        before = len(await read_all(one.bootstrap, full_name(prefix, "commands"), 2))
        worker = Worker(settings_of(one, cold_lookback_ms=5_000))
        async with running(worker), sending(one, 0.1):
            await until(
                lambda: (
                    len(worker.engines) == 2
                    and all(
                        not e.mute_until
                        and e.at > ends[p] + 20
                        and worker.metrics.value("ticks_total", partition=str(p)) >= 2
                        for p, e in worker.engines.items()
                    )
                ),
                20,
                "speaks again",
            )
            assert worker.metrics.value("cold_starts_total") == 2
            assert worker.metrics.value("outputs_muted_total", partition="0") > 0
            for engine in worker.engines.values():
                assert engine.state is not None
                assert engine.state.log_ms > 0
        after = await read_all(one.bootstrap, full_name(prefix, "commands"), 2)
        fresh = [orjson.loads(r.value)["cause"] for r in after]
        fresh = sorted(fresh, key=lambda cause: cause["log_ms"])[before:]
        assert fresh
        assert all(cause["offset"] >= ends[cause["partition"]] for cause in fresh)


async def test_what_retention_removed_is_counted_as_lost(broker: DevBroker, prefix: str) -> None:
    async with fleet(broker.bootstrap, prefix) as one:
        async with running(Worker(settings_of(one))) as task:
            await one.round()
            worker_done = task
            await asyncio.sleep(4)
        assert worker_done.result() == 0
        for _ in range(3):
            await one.round()
        gone = await log_ends(one)
        await one.round()
        await delete_before(one, "samples", gone)
        worker = Worker(settings_of(one))
        async with running(worker):
            await until(
                lambda: (
                    bool(worker.engines)
                    and all(e.at >= one.acknowledged[p] for p, e in worker.engines.items())
                ),
                20,
                "goes on after the hole",
            )
            lost = sum(worker.metrics.value("lost_total", partition=str(p)) for p in range(2))
            assert lost == 3 * len(one.nodes)


async def test_rule11_no_progress_fails_liveness_and_ends(broker: DevBroker, prefix: str) -> None:
    async with fleet(broker.bootstrap, prefix) as one:
        worker = Worker(settings_of(one, stall_after_s=3.0, stall_grace_s=2.0))
        async with running(worker) as task:
            await until(lambda: worker.port > 0 and not worker.why_not_ready(), 20, "ready")
            assert worker.why_not_live() == ""
            await own_tick(one, 0, {"ledger/0": 99})  # never to be had
            await one.round()
            await until(lambda: "records behind" in worker.why_not_live(), 15, "not live")
            await until(task.done, 15, "it ends")
            assert task.result() == 1


async def test_sigterm_ends_in_order_and_soon(
    broker: DevBroker, prefix: str, tmp_path: Path
) -> None:
    async with fleet(broker.bootstrap, prefix) as one:
        with WorkerProcess(broker.bootstrap, prefix, tmp_path / "a") as worker:
            async with sending(one):
                await until(lambda: is_ready(worker), 20, "ready")
                worker.signal(signal.SIGTERM)
                await until(lambda: worker.process.poll() is not None, 8, "ended")
            assert worker.process.returncode == 0


async def test_a_new_installation_is_observed_and_the_log_says_so(
    broker: DevBroker, prefix: str, tmp_path: Path
) -> None:
    await create(broker.bootstrap, prefix, 2, 1, "name: default\n")

    async def on(topic: str) -> list[Any]:
        return await read_all(broker.bootstrap, full_name(prefix, topic), 2)

    async def reported() -> bool:
        return bool(await on("reservations"))

    async with fleet(broker.bootstrap, prefix) as one:
        with WorkerProcess(broker.bootstrap, prefix, tmp_path / "a") as worker:
            async with sending(one):
                said = stages.means("observe")
                await until(lambda: said in " ".join(worker.text.split()), 30, "the stage")
                await until(reported, 30, "reports")
    assert {record.key for record in await on("commands")} == {LEASE_KEY}
    assert await on("capacity") == []


async def test_without_topics_it_says_what_to_run(
    broker: DevBroker, prefix: str, tmp_path: Path
) -> None:
    with WorkerProcess(broker.bootstrap, prefix, tmp_path / "a") as worker:
        await until(lambda: worker.process.poll() is not None, 15, "ended")
        assert worker.process.returncode == 1
        assert "slackwater topics create" in " ".join(worker.text.split())
