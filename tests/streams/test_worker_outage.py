"""A broker that goes away and comes back: workers wait, and are whole again soon after."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

from schemas.topics import full_name
from streams.checker import check
from streams.dev_broker import DevBroker
from streams.worker import Worker
from tests.streams.fleet_kit import (
    Fleet,
    WorkerProcess,
    end,
    fleet,
    is_ready,
    log_ends,
    metric,
    sending,
    until,
)
from tests.streams.test_worker_rules import running, settings_of

WHOLE_AGAIN_S = 15.0


@pytest.mark.parametrize("how", ["stopped", "killed", "hung"])
async def test_whole_again_after_an_outage(how: str, prefix: str, tmp_path: Path) -> None:
    away_s = 12.0
    async with DevBroker(data=tmp_path / "kafka") as own, fleet(own.bootstrap, prefix) as one:
        with WorkerProcess(own.bootstrap, prefix, tmp_path / "a") as worker:
            async with sending(one):
                await until(lambda: is_ready(worker), 20, "ready")

                async def cut() -> bool:
                    return await metric(worker, "images_total") >= 2

                await until(cut, 15, "images")
            leave = {"stopped": own.stop, "killed": own.kill, "hung": own.pause}[how]
            await asyncio.to_thread(leave)
            await asyncio.sleep(away_s)
            assert worker.process.poll() is None, "it waits"
            assert (await asyncio.to_thread(worker.get, "/healthz"))[0] == 200
            await asyncio.to_thread(own.resume if how == "hung" else own.start)
            back = time.monotonic()

            async def works() -> bool:
                """A sample sent after the return has been folded and answered by ticks."""
                try:
                    await one.round()
                    ends = await log_ends(one)
                except KafkaError:
                    return False
                await asyncio.sleep(0.3)
                at = [await metric(worker, "at_offset", partition=str(p)) for p in range(2)]
                return all(at[p] >= ends[p] - 1 for p in ends)

            await until(works, 40, "whole again")
            took = time.monotonic() - back
            await until(lambda: is_ready(worker), 20, "ready again")
            assert await end(worker) == 0
        verdict = await check(own.bootstrap, prefix)
        assert verdict.ok, verdict.as_json()
        print(f"\n{how}: whole {took:.1f} s after the broker's return")
        assert took <= WHOLE_AGAIN_S


async def test_refused_outputs_are_said_again_from_the_image(
    broker: DevBroker, prefix: str
) -> None:
    """The broker refuses a topic's records for a while: nothing is lost, repeats are identical."""
    async with fleet(broker.bootstrap, prefix) as one:
        worker = Worker(settings_of(one))
        async with running(worker), sending(one, 0.1):
            await until(lambda: worker.metrics.value("images_total") >= 2, 30, "images")
            recovered = worker.metrics.value("recovery_seconds_count")
            await limit_bytes(one, "commands", 10)
            await until(lambda: worker.metrics.value("outputs_failed_total") >= 1, 20, "refused")
            await until(
                lambda: worker.metrics.value("recovery_seconds_count") > recovered, 20, "again"
            )
            await limit_bytes(one, "commands", 1_000_000)
            ends = await log_ends(one)
            await until(
                lambda: all(e.open and e.at > ends[p] for p, e in worker.engines.items()),
                25,
                "whole again",
            )
            ticks = worker.metrics.value("ticks_total")
            await until(lambda: worker.metrics.value("ticks_total") >= ticks + 4, 10, "ticks")
            assert worker.why_not_live() == ""
        verdict = await check(one.bootstrap, one.prefix)
        assert verdict.ok, verdict.as_json()


async def limit_bytes(one: Fleet, topic: str, size: int) -> None:
    client = AIOKafkaAdminClient(bootstrap_servers=one.bootstrap)
    await client.start()
    try:
        name, limit = full_name(one.prefix, topic), {"max.message.bytes": str(size)}
        await client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, configs=limit)])
    finally:
        await client.close()


async def test_told_to_end_while_the_broker_is_away(prefix: str, tmp_path: Path) -> None:
    async with DevBroker(data=tmp_path / "kafka") as own, fleet(own.bootstrap, prefix) as one:
        with WorkerProcess(own.bootstrap, prefix, tmp_path / "a") as worker:
            async with sending(one):
                await until(lambda: is_ready(worker), 20, "ready")
            await asyncio.to_thread(own.kill)
            worker.signal(signal.SIGTERM)
            assert await asyncio.to_thread(worker.end, 30.0) == 0
