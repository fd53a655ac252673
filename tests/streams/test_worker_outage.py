"""A broker that goes away and comes back: workers wait, and are whole again soon after."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from aiokafka.errors import KafkaError

from streams.checker import check
from streams.dev_broker import DevBroker
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
