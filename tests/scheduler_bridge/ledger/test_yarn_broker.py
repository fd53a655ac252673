"""YARN in the ledger, on a real topic: told, held, lost, begun again, shared with a claimant."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

import orjson
import pytest

from scheduler_bridge.ledger.amounts import NOTHING
from scheduler_bridge.ledger.book import Slot, amount_of
from scheduler_bridge.ledger.keeper import LedgerTaken
from scheduler_bridge.loop import Bridge
from scheduler_bridge.reconcile import Amount
from schemas import ledger
from streams.dev_broker import DevBroker
from tests.scheduler_bridge.ledger.checker import Said, check
from tests.scheduler_bridge.ledger.stage import GIB, Topics, bridge_of, until
from tests.scheduler_bridge.test_bridge_broker import make_topics
from tests.scheduler_bridge.yarn_server import YarnServer

EIGHT = Amount(8000, 8 * GIB)


@dataclass(slots=True)
class Stage:
    topics: Topics
    yarn: YarnServer
    record: Path

    def bridge(self) -> AbstractAsyncContextManager[Bridge]:
        return bridge_of(self.topics, self.record, self.yarn)


@pytest.fixture
async def stage(broker: DevBroker, prefix: str, tmp_path: Path) -> AsyncIterator[Stage]:
    await make_topics(broker.bootstrap, prefix)
    async with YarnServer() as yarn, Topics(broker.bootstrap, prefix) as topics:
        yarn.join("n1")
        await topics.capacity("n1", EIGHT)
        yield Stage(topics, yarn, tmp_path / "record")


def held(bridge: Bridge, node: str = "n1") -> Amount:
    return bridge.view.book.of(node).holds("yarn")


async def test_yarn_is_told_and_what_its_containers_hold_is_said(stage: Stage) -> None:
    async with stage.bridge() as bridge:
        manager = stage.yarn.managers["n1"]
        await until(lambda: manager.total == (8192, 8), "YARN may use what is lendable")
        for _ in range(3):
            stage.yarn.ask(1024, 2)
        await until(lambda: held(bridge) == Amount(6000, 3 * GIB), "three containers are held")
        await stage.topics.capacity("n1", Amount(4000, 8 * GIB))
        await until(lambda: manager.total == (8192, 6), "a fall is told, but not below what runs")
    said = await stage.topics.ledger()
    assert check(said).over == []


async def test_a_container_that_dies_without_release_gives_its_slice_back_once(
    stage: Stage,
) -> None:
    async with stage.bridge() as bridge:
        await until(lambda: stage.yarn.managers["n1"].total == (8192, 8), "told")
        dies, stays = stage.yarn.ask(2048, 2), stage.yarn.ask(1024, 1)
        await until(lambda: held(bridge) == Amount(3000, 3 * GIB), "both are held")
        stage.yarn.die("n1", dies.id)
        await until(lambda: held(bridge) == Amount(1000, GIB), "the slice is back")
        assert stays.id in stage.yarn.managers["n1"].runs
        remainder = bridge.view.book.of("n1").remainder(EIGHT, 0)
        assert remainder == NOTHING  # it is YARN's share again, and nobody else's too
    assert falls(await stage.topics.ledger(), "n1") == [2000]


async def test_a_machine_that_goes_dark_gives_its_slice_back_once(stage: Stage) -> None:
    async with stage.bridge() as bridge:
        await until(lambda: stage.yarn.managers["n1"].total == (8192, 8), "told")
        stage.yarn.ask(4096, 4)
        await until(lambda: held(bridge) == Amount(4000, 4 * GIB), "held")
        stage.yarn.lose("n1")
        await until(lambda: held(bridge) == NOTHING, "the slice is back")
        await until(
            lambda: bridge.view.book.of("n1").counted(0) == NOTHING, "its share has ended too"
        )
        await stage.topics.claim("n1", "all", EIGHT)
        await until(lambda: granted(bridge, "all") == EIGHT, "all of it can be had by another")
    said = await stage.topics.ledger()
    assert falls(said, "n1") == [4000]
    assert check(said).over == []


async def test_a_resource_manager_that_begins_again_releases_nothing_that_runs(
    stage: Stage,
) -> None:
    async with stage.bridge() as bridge:
        manager = stage.yarn.managers["n1"]
        await until(lambda: manager.total == (8192, 8), "told")
        stage.yarn.ask(4096, 4)
        await until(lambda: held(bridge) == Amount(4000, 4 * GIB), "held")
        await stage.yarn.restart()
        assert manager.total == (0, 0)
        await until(lambda: manager.total == (8192, 8), "told again after its restart")
    assert falls(await stage.topics.ledger(), "n1") == []


async def test_a_claim_is_taken_from_what_yarn_does_not_use_and_runs_out(stage: Stage) -> None:
    async with stage.bridge() as bridge:
        manager = stage.yarn.managers["n1"]
        await until(lambda: manager.total == (8192, 8), "told")
        stage.yarn.ask(4096, 5)
        await until(lambda: held(bridge) == Amount(5000, 4 * GIB), "held")
        await stage.topics.claim("n1", "big", Amount(4000, GIB))
        await until(lambda: reason(bridge, "big") == "no_room", "more than is unused is refused")
        await stage.topics.claim("n1", "fits", Amount(3000, GIB), ttl_ms=1_500)
        await until(lambda: granted(bridge, "fits") == Amount(3000, GIB), "the unused is granted")
        assert manager.total[1] == 5
        await until(lambda: manager.total == (8192, 8), "its claimant is dead: YARN's again")
    assert check(await stage.topics.ledger()).over == []


async def test_two_bridges_by_accident_one_ends_and_nothing_is_lent_twice(
    stage: Stage, tmp_path: Path
) -> None:
    first, sink = stage.topics.bridge(stage.record, stage.yarn)
    ends = asyncio.create_task(first.run())
    await until(lambda: reigns(first), "it reigns")
    async with bridge_of(stage.topics, tmp_path / "other", stage.yarn) as second:
        await until(lambda: reigns(second), "the second has taken over")
        with pytest.raises(LedgerTaken, match="several that elect one"):
            await asyncio.wait_for(ends, 20)
        await until(lambda: stage.yarn.managers["n1"].total == (8192, 8), "YARN is told by it")
    sink.close()
    assert check(await stage.topics.ledger()).over == []


def reigns(bridge: Bridge) -> bool:
    return bridge.keeper is not None and bridge.keeper.reigns


def granted(bridge: Bridge, claim: str) -> Amount:
    grant = bridge.view.book.of("n1").grants.get(Slot("slurm", claim))
    return amount_of(grant) if grant is not None else NOTHING


def reason(bridge: Bridge, claim: str) -> str:
    grant = bridge.view.book.of("n1").grants.get(Slot("slurm", claim))
    return grant.reason if grant is not None else ""


def falls(said: list[Said], node: str) -> list[int]:
    """By how much what YARN holds fell, each time, in the order of the log."""
    found, last = [], 0
    for one in said:
        if one.key == ledger.entry_key(node, "yarn"):
            now = orjson.loads(one.raw)["cpu_milli"] if one.raw is not None else 0
            if now < last:
                found.append(last - now)
            last = now
    return found
