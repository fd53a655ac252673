"""Scheduler and world: nothing is lent beyond an offer, evicted work comes back, records add up."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node_agent.simulate import fleet
from node_agent.simulate.scheduler import WORKLOAD
from node_agent.simulate.trace import load
from node_agent.simulate.world import GRACE_US, Said, World
from schemas.records import Capacity, Cause, Inventory, Job, LedgerEntry

GIB = 1 << 30
SECOND_US = 1_000_000
NODES = 3
ALL = slice(0, NODES)


def build(seed: int = 1) -> World:
    world = World(fleet.build(NODES, 20, seed, 60), load("azure"), seed, 1000, scheduling=True)
    for row in range(NODES):
        world.scheduler.offer(row, 8000, 64 * GIB, SECOND_US, new_work=True)
    return world


def live(world: World, seconds: int, start: int = 1) -> list[Said]:
    said: list[Said] = []
    for second in range(start, start + seconds):
        world.step(ALL, second * SECOND_US, float(second))
        said += world.settle(ALL, second * SECOND_US)
    return said


def check_books(world: World) -> None:
    """Lent is what the tasks ask for; model, scheduler and inventory name the same pods."""
    for row, name in enumerate(world.fleet.names):
        entry = world.scheduler.entry(row)
        tasks = [task for (at, _), task in world.scheduler.tasks.items() if at == row]
        assert entry.cpu_milli == sum(task.request_milli for task in tasks)
        assert entry.memory_bytes == sum(task.memory_bytes for task in tasks)
        assert 0 <= entry.releasing_cpu_milli <= entry.cpu_milli
        assert int(world.model.present[row].sum()) == len(tasks)
        inventory = world.inventory(row)
        assert inventory.node == name
        batch = [pod.uid for pod in inventory.pods if pod.qos == "BE"]
        assert sorted(batch) == sorted(entry.pods)


def test_nothing_is_lent_without_an_offer_or_to_a_closed_or_silent_node() -> None:
    world = World(fleet.build(NODES, 20, 1, 60), load("azure"), 1, 1000, scheduling=True)
    live(world, 2)
    assert world.scheduler.lent_milli.tolist() == [0, 0, 0]
    world.scheduler.offer(0, 8000, 64 * GIB, SECOND_US, new_work=False)
    world.scheduler.offer(1, 8000, 64 * GIB, SECOND_US, new_work=True)
    world.settle(ALL, 901 * SECOND_US)
    assert world.scheduler.lent_milli.tolist() == [0, 0, 0]
    world.settle(ALL, 900 * SECOND_US)
    assert world.scheduler.lent_milli[1] > 0
    assert world.scheduler.lent_milli[0] == world.scheduler.lent_milli[2] == 0


def test_a_whitelist_without_its_workload_closes_a_node_and_mid_is_counted_not_lent() -> None:
    world = World(fleet.build(NODES, 20, 1, 60), load("azure"), 1, 1000, scheduling=True)
    cause = Cause(1, 0, 0, 0, "", 1)
    for row, workloads in enumerate([("other",), ("other", WORKLOAD), ()]):
        name = world.fleet.names[row]
        said = Capacity(
            name, cause, 8000, 64 * GIB, "raise", workloads=workloads, mid_cpu_milli=500
        )
        world.scheduler.hear(row, said, SECOND_US)
    live(world, 3)
    lent = world.scheduler.lent_milli.tolist()
    assert (lent[0], lent[1] > 0, lent[2] > 0) == (0, True, True)
    assert world.scheduler.offered_mid_milli == 1500
    assert world.scheduler.entry(1).mid_cpu_milli == 0
    world.scheduler.hear(1, None, SECOND_US)
    assert world.scheduler.offered_mid_milli == 1000
    assert world.scheduler.lent_milli.tolist() == lent  # what runs is kept


def test_jobs_run_to_their_end_and_their_loan_ends() -> None:
    world = build()
    said = live(world, 120)
    check_books(world)
    jobs = [record for topic, _, record in said if topic == "jobs"]
    done = [job for job in jobs if job.state == "done"]
    assert world.jobs_done == len(done) > 3
    assert all(job.progress_permille == 1000 for job in done)
    by_job: dict[str, list[Job]] = {}
    for job in jobs:
        by_job.setdefault(job.job, []).append(job)
    for records in by_job.values():
        progress = [record.progress_permille for record in records]
        assert progress == sorted(progress)
    states = Counter(job.state for job in jobs)
    assert states["running"] > states["done"]


def test_every_change_of_pods_is_a_new_revision_said_before_anything_else() -> None:
    world = build()
    seen = dict.fromkeys(world.fleet.names, 0)
    for second in range(1, 80):
        world.step(ALL, second * SECOND_US, float(second))
        said = world.settle(ALL, second * SECOND_US)
        topics = [topic for topic, _, _ in said]
        assert topics == sorted(topics, key=lambda topic: topic != "inventory")
        for _, key, record in said:
            if isinstance(record, Inventory):
                assert record.pods_rev > seen[key]
                seen[key] = record.pods_rev
        for row, key in enumerate(world.fleet.names):
            sample = world.sampler.record(row, 0, 0)
            assert sample.pods_rev == seen[key]
            assert sample.pods == len(world.inventory(row).pods)


def test_an_evicted_job_goes_at_once_is_released_later_and_comes_back() -> None:
    world = build()
    live(world, 5)
    uid = next(pod.uid for pod in world.inventory(0).pods if pod.qos == "BE")
    lent = int(world.scheduler.lent_milli[0])
    now = 5 * SECOND_US + 1
    (said,) = world.evict(0, uid, now)
    assert (said[0], said[2].state) == ("jobs", "evicted")
    assert world.evict(0, uid, now) == []
    assert world.evictions == 1
    assert int(world.scheduler.lent_milli[0]) == lent
    assert world.scheduler.entry(0).releasing_cpu_milli > 0
    after = world.settle(ALL, now + GRACE_US - 1)
    (inventory,) = [r for t, k, r in after if t == "inventory" and k == world.fleet.names[0]]
    assert [pod.uid for pod in inventory.pods if pod.terminating] == [uid]
    assert world.retries == 0
    world.settle(ALL, now + GRACE_US)
    assert world.retries == 1
    assert uid not in [pod.uid for pod in world.inventory(0).pods]
    assert world.scheduler.entry(0).releasing_cpu_milli == 0
    check_books(world)
    later = live(world, 200, start=10)
    again = [r for t, _, r in later if t == "jobs" and r.job == uid.split("-try-")[0]]
    assert [r.state for r in again][:1] == ["running"]
    assert all(r.retries == 1 for r in again)


def test_farewell_lends_nothing_and_the_nodes_leave() -> None:
    world = build()
    live(world, 5)
    said = world.farewell()
    newest = {key: record for topic, key, record in said if topic == "ledger"}
    assert set(newest) == {f"{name}/simulated" for name in world.fleet.names}
    assert all(entry.cpu_milli == 0 and not entry.pods for entry in newest.values())
    left = [record for topic, _, record in said if topic == "inventory"]
    assert len(left) == NODES
    assert all(record.removed for record in left)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.data())
def test_the_books_add_up_whatever_happens(seed: int, data: st.DataObject) -> None:
    world = build(seed)
    second = 0
    for _ in range(data.draw(st.integers(1, 15))):
        second += data.draw(st.integers(1, 20))
        row = data.draw(st.integers(0, NODES - 1))
        offer = data.draw(st.integers(0, 30_000))
        before = world.scheduler.lent_milli.copy()
        is_open: bool = data.draw(st.booleans())
        world.scheduler.offer(row, offer, 64 * GIB, second * SECOND_US, new_work=is_open)
        batch = [pod.uid for pod in world.inventory(row).pods if pod.qos == "BE"]
        evicts: bool = data.draw(st.booleans())
        if batch and evicts:
            world.evict(row, batch[data.draw(st.integers(0, len(batch) - 1))], second * SECOND_US)
        world.step(ALL, second * SECOND_US, float(second))
        said = world.settle(ALL, second * SECOND_US)
        check_books(world)
        after = world.scheduler.lent_milli
        grew = np.flatnonzero(after > before)
        assert all(after[at] <= world.scheduler._offer_milli[at] for at in grew)
        for _, _, record in said:
            if isinstance(record, LedgerEntry):
                assert record == world.scheduler.entry(world.fleet.names.index(record.node))


def test_the_same_seed_says_the_same() -> None:
    assert live(build(4), 60) == live(build(4), 60)
    assert live(build(4), 60) != live(build(5), 60)


@pytest.mark.parametrize("rows", [slice(0, 1), slice(1, 3)])
def test_a_slice_touches_only_its_rows(rows: slice) -> None:
    world = build()
    world.settle(ALL, SECOND_US)
    world.step(rows, 2 * SECOND_US, 1.0)
    said = world.settle(rows, 3 * SECOND_US)
    keys = {r.node for topic, _, r in said if topic in ("inventory", "ledger")}
    assert keys <= set(world.fleet.names[rows])
