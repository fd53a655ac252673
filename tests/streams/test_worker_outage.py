"""A broker that goes away and comes back: workers wait, and are whole again soon after."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from aiokafka.errors import KafkaError

from agents.log import Output
from schemas.records import Cause, Decision
from streams.checker import check
from streams.dev_broker import DevBroker
from streams.worker import Worker
from tests.streams.fleet_kit import (
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


@pytest.mark.parametrize("how", ["stopped", "killed"])
async def test_whole_again_after_an_outage(how: str, prefix: str, tmp_path: Path) -> None:
    away_s = 12.0
    async with DevBroker(data=tmp_path / "kafka") as own, fleet(own.bootstrap, prefix) as one:
        with WorkerProcess(own.bootstrap, prefix, tmp_path / "a") as worker:
            async with sending(one):
                await until(lambda: is_ready(worker), 20, "ready")

                async def cut() -> bool:
                    return await metric(worker, "images_total") >= 2

                await until(cut, 15, "images")
            await asyncio.to_thread(own.stop if how == "stopped" else own.kill)
            await asyncio.sleep(away_s)
            assert worker.process.poll() is None, "it waits"
            assert (await asyncio.to_thread(worker.get, "/healthz"))[0] == 200
            await asyncio.to_thread(own.start)
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


async def test_refused_outputs_are_said_again_from_the_image(prefix: str, tmp_path: Path) -> None:
    """A broker that hangs longer than a producer waits: batches are given up, none is lost."""
    async with DevBroker(data=tmp_path / "kafka") as own, fleet(own.bootstrap, prefix) as one:
        worker = Worker(settings_of(one, request_timeout_s=3.0))
        async with running(worker):
            await until(lambda: worker.port > 0 and not worker.why_not_ready(), 20, "ready")
            async with sending(one, 0.1):
                await until(lambda: worker.metrics.value("images_total") >= 2, 15, "images")
            stuck = [Output("decisions", b"x", record(p), 0, "x", "health") for p in range(2)]
            await asyncio.to_thread(own.pause)
            for partition, output in enumerate(stuck):
                await worker.outputs.publish(partition, [output])
            await until(lambda: worker.metrics.value("outputs_failed_total") >= 2, 20, "refused")
            await asyncio.to_thread(own.resume)
            ticks = worker.metrics.value("ticks_total")
            await until(lambda: worker.metrics.value("ticks_total") >= ticks + 4, 25, "ticks again")

            async def whole() -> bool:
                await one.round()
                await asyncio.sleep(0.3)
                return all(e.at >= one.acknowledged[p] for p, e in worker.engines.items())

            await until(whole, 20, "whole again")
            assert worker.metrics.value("recovery_seconds_count") >= 4, "both from their images"
        verdict = await check(own.bootstrap, prefix)
        assert verdict.missing == verdict.differing == verdict.images_differing == 0, verdict


def record(partition: int) -> Decision:
    """A decision nobody's law made, to be refused."""
    return Decision("health", Cause(1, partition, 0, 0, "", 1), ("x",), ("staged",))
