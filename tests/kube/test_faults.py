"""Whatever breaks between the log and the cluster: capacity is right again within 5 s, no eviction.

One of each here; series of 20 are `python -m tests.bench.kube_faults`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from streams.dev_broker import DevBroker
from tests.kube import objects
from tests.kube.cluster import Cluster
from tests.kube.fault_stage import FAULTS, Stage, play
from tests.kube.programs import Programs
from tests.support import patient

AGAIN_WITHIN_S = 5.0


@pytest.fixture
async def stage(
    kube_programs: Programs, broker: DevBroker, prefix: str, tmp_path: Path
) -> AsyncIterator[Stage]:
    with Cluster(tmp_path / "cluster", kube_programs) as own:
        async with Stage(own, broker.bootstrap, prefix, tmp_path) as made:
            await made.begin()
            yield made


async def test_capacity_is_right_again_after_each_fault(stage: Stage) -> None:
    took_s = {}
    for number, fault in enumerate((*FAULTS, "conflict_storm")):
        cpu_milli = 2_000 if number % 2 else 6_000
        took_s[fault], evicted = await play(stage, fault, cpu_milli)
        assert not evicted, fault
    late = {fault: s for fault, s in took_s.items() if s > patient(AGAIN_WITHIN_S)}
    assert not late


async def test_without_new_work_a_bridge_offers_what_pods_hold(stage: Stage) -> None:
    await stage.say(4_000, new_work=False)

    async def closed() -> bool:
        offered = [await stage.offered(node) for node in stage.nodes]
        return offered == [500] * 4 + [0] * 8

    await objects.until(closed, "four pods' 500 are offered, and nothing elsewhere")
    assert not await stage.evicted()
