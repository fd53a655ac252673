"""Leaders by Lease on the real API server: never two, whatever stops, dies or lies."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime, tzinfo

import pytest
from lightkube import AsyncClient
from lightkube.resources.coordination_v1 import Lease

from scheduler_bridge.kube import election as election_module
from scheduler_bridge.kube.client import connect
from scheduler_bridge.kube.election import Election, boot_ms
from tests.kube.cluster import Cluster
from tests.kube.programs import Programs
from tests.support import patient

LEASE_S = 2


@pytest.fixture(scope="module")
def own(kube_programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster that these tests may harm."""
    with Cluster(tmp_path_factory.mktemp("own") / "cluster", kube_programs) as mine:
        yield mine


@asynccontextmanager
async def standing(
    cluster: Cluster, name: str, own: str, clock: Callable[[], int] = boot_ms
) -> AsyncIterator[Election]:
    """A candidate; leaving is a clean exit."""
    async with connect(cluster.kubeconfig()) as kube:
        candidate = Election(kube, "default", name, own, lease_s=LEASE_S, clock=clock)
        task = asyncio.create_task(candidate.run())
        try:
            yield candidate
            assert not task.done(), task
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def lead(*candidates: Election) -> int:
    """How many of them may write now."""
    return sum(one.leads for one in candidates)


async def until(check: Callable[[], bool], what: str, within_s: float = 10) -> None:
    try:
        async with asyncio.timeout(patient(within_s)):
            while not check():  # noqa: ASYNC110 - the condition is another task's
                await asyncio.sleep(0.002)
    except TimeoutError:
        pytest.fail(f"not within {within_s} s: {what}")


async def test_one_leads_the_other_follows_at_once_after_a_clean_exit(
    cluster: Cluster, client: AsyncClient
) -> None:
    async with standing(cluster, "clean", "a") as first:
        await until(lambda: first.leads, "the first leads")
        async with standing(cluster, "clean", "b") as second:
            await until(lambda: second.holder == "a", "the second sees the first")
            first_task_ends = time.monotonic()
            lease = await client.get(Lease, "clean", namespace="default")
            assert lease.spec is not None
            assert (lease.spec.holderIdentity, lease.spec.leaseTransitions) == ("a", 0)
            await first._release()
            assert not lead(first)
            await until(lambda: lead(first, second) > 0, "someone leads again")
            assert time.monotonic() - first_task_ends < patient(LEASE_S)
            assert lead(first, second) == 1


async def test_a_leader_that_vanishes_is_followed_after_its_lease(cluster: Cluster) -> None:
    async with connect(cluster.kubeconfig()) as kube:
        dead = Election(kube, "default", "vanishes", "dead", lease_s=LEASE_S)
        await dead._turn()
        assert lead(dead)
        async with standing(cluster, "vanishes", "b") as second:
            began = time.monotonic()
            while not lead(second):
                if lead(dead):
                    began = time.monotonic()
                await asyncio.sleep(0.002)
            assert not lead(dead), "it stopped by itself, before"
            between_s = time.monotonic() - began
        assert between_s >= LEASE_S / 3 * 0.9, "and not only just before"
        assert between_s < patient(LEASE_S)


async def test_a_wall_clock_that_stands_or_steps_changes_nothing(
    cluster: Cluster, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stepping:
        """A wall clock that was set back by years, and then stands."""

        @classmethod
        def now(cls, tz: tzinfo) -> datetime:
            return datetime(2001, 1, 1, tzinfo=tz)

    async with standing(cluster, "steps", "a") as first:
        await until(lambda: first.leads, "the first leads")
        monkeypatch.setattr(election_module, "datetime", Stepping)
        async with standing(cluster, "steps", "b") as second:
            seen = set()
            end = time.monotonic() + LEASE_S * 2
            while time.monotonic() < end:
                assert first.leads
                assert not second.leads
                lease = await client.get(Lease, "steps", namespace="default")
                assert lease.spec is not None
                seen.add(lease.spec.renewTime)
                await asyncio.sleep(0.05)
    assert len(seen) >= 4, "each renewal is seen as one"


async def test_a_machine_that_slept_no_longer_leads(cluster: Cluster) -> None:
    slept_ms = 0
    async with standing(cluster, "sleeps", "a", lambda: boot_ms() + slept_ms) as first:
        await until(lambda: first.leads, "it leads")
        slept_ms = 60_000
        assert not lead(first), "from the first moment on"
        assert first.write_within_s <= LEASE_S / 3
        await until(lambda: first.leads, "its lease was not taken: it leads again")


@pytest.mark.parametrize("how", ["pause", "kill"])
async def test_a_leader_that_cannot_renew_stops_before_its_lease_can_be_taken(
    own: Cluster, how: str
) -> None:
    both, gaps = 0, []
    async with standing(own, how, "a") as first, standing(own, how, "b") as second:
        await until(lambda: lead(first, second) > 0, "one leads")
        leader = first if first.leads else second
        lost_s = time.monotonic()
        getattr(own.api_server, how)()
        try:
            await until(lambda: not leader.leads, "it stops", LEASE_S)
            gaps.append(time.monotonic() - lost_s)
        finally:
            if how == "pause":
                own.api_server.resume()
            else:
                await asyncio.to_thread(own.api_server.start)
        end = time.monotonic() + patient(10)
        while not lead(first, second):
            assert time.monotonic() < end, "nobody leads again"
            await asyncio.sleep(0.002)
        for _ in range(500):
            both += lead(first, second) > 1
            await asyncio.sleep(0.002)
    assert both == 0
    assert gaps[0] <= patient(LEASE_S * 2 / 3 + 0.1)


async def test_who_cannot_have_the_lease_or_stands_by_says_so_once(
    own: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="slackwater.bridge")

    def told(what: str) -> list[str]:
        return [line for line in caplog.messages if what in line]

    async with connect(own.kubeconfig()) as kube:
        lost = Election(kube, "nowhere", "said", "a", lease_s=LEASE_S)
        task = asyncio.create_task(lost.run())
        await until(lambda: bool(told("cannot be had")), "it says that it cannot stand")
        async with standing(own, "said", "b") as first, standing(own, "said", "c") as second:
            await until(lambda: lead(first, second) == 1, "one leads")
            holder = "b" if first.leads else "c"
            await until(lambda: bool(told(f"standing by for {holder}")), "the other stands by")
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    assert len(told("cannot be had")) == 1, "not once a turn"
    assert "nowhere/said" in told("cannot be had")[0]
