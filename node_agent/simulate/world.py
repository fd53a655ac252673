"""A simulated fleet as one thing: model, scheduler, pod sets; what changes becomes records. Pure.

The live loop moves it on by slices of rows and publishes what it says; time comes in as
``mono_us``. `Said` is (topic, key, record), in the order in which it must be published.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from node_agent.simulate.fleet import Fleet
from node_agent.simulate.model import Model
from node_agent.simulate.sampler import Sampler
from node_agent.simulate.scheduler import Scheduler, Task
from node_agent.simulate.services import Services
from node_agent.simulate.trace import IntArray, Trace
from schemas.ledger import entry_key
from schemas.records import Inventory, PodFact

Said = tuple[str, str, Any]
GRACE_US = 2_000_000  # an evicted pod holds its slot and what it was lent for so long
REPORT_US = 5_000_000  # a running job says so again after so long
PLACED_AT_ONCE = 64
SUPPRESSED_PERMILLE = 900  # a job that got less of what it wants calls itself suppressed


class World:
    """The fleet's state; every method that changes it returns or queues what is to be said."""

    def __init__(
        self, fleet: Fleet, trace: Trace, seed: int, period_ms: int, *, scheduling: bool
    ) -> None:
        self.fleet = fleet
        self.model = Model(fleet, trace)
        self.sampler = Sampler(self.model, period_ms)
        self.services = Services(fleet)
        nodes = len(fleet.names)
        self.scheduler = Scheduler(fleet, seed, backlog=2 * nodes if scheduling else 0)
        self.facts: list[dict[str, PodFact]] = [{} for _ in range(nodes)]
        self.jobs_done = self.evictions = self.retries = 0
        self._online: dict[int, tuple[PodFact, ...]] = {}
        self._slots: list[dict[str, int]] = [{} for _ in range(nodes)]
        self._going: dict[tuple[int, int], int] = {}  # (row, slot) -> mono_us when it has gone
        self._reported_us: dict[tuple[int, int], int] = {}
        self._new_pods = set(range(nodes))
        self._new_ledger = set(range(nodes)) if scheduling else set()
        self._last_us: IntArray = np.full(nodes, -1, np.int64)

    def step(self, rows: slice, mono_us: int, trace_s: float) -> None:
        """Use, progress and memory up to ``mono_us``; the first call only sets the rows' clock."""
        before = int(self._last_us[rows.start])
        self._last_us[rows] = mono_us
        if before >= 0:
            model, dt_us = self.model, max(0, mono_us - before)
            model.step(rows, dt_us, trace_s)
            self.services.note(rows, dt_us, model.wait[rows], model.demand_milli[rows])

    def settle(self, rows: slice, mono_us: int) -> list[Said]:
        """What became of batch pods, who comes next, and all records that say so."""
        out: list[Said] = []
        self._finish(rows, out)
        self._bury(rows, mono_us)
        for placed in self.scheduler.place(~self.model.present, rows, PLACED_AT_ONCE, mono_us):
            self._start(placed.row, placed.slot, placed.task, mono_us, out)
        self._report(rows, mono_us, out)
        for row in self._changed(self._new_pods, rows):
            out.insert(0, ("inventory", self.fleet.names[row], self.inventory(row)))
        lent = self._changed(self._new_ledger, rows)
        out += [self._entry(row) for row in lent]
        return out + [("slis", said.node, said) for said in self.services.due(rows)]

    def evict(self, row: int, uid: str, mono_us: int) -> list[Said]:
        """The pod's processes are gone at once, its slot and its loan after `GRACE_US`."""
        slot = self._slots[row][uid]
        if (row, slot) in self._going:
            return []
        self.model.end(row, slot)
        self._going[row, slot] = mono_us + GRACE_US
        self.evictions += 1
        task = self.scheduler.releasing(row, slot)
        self._new_pods.add(row)
        self._new_ledger.add(row)
        self.facts[row][uid] = task.fact(terminating=True)
        done = int(self.model.done_us[row, slot])
        return [("jobs", task.id, task.job(self.fleet.names[row], "evicted", done))]

    def inventory(self, row: int) -> Inventory:
        """The node as it is; pods in the order of the sample's columns."""
        fleet = self.fleet
        return Inventory(
            node=fleet.names[row],
            pods_rev=int(self.sampler.pods_rev[row]),
            cpu_capacity_milli=int(fleet.cpu_milli[row]),
            memory_capacity_bytes=int(fleet.memory_bytes[row]),
            kernel="simulated",
            pods=tuple(self.facts[row].values()),
        )

    def farewell(self) -> list[Said]:
        """The end of the run: running jobs are queued again, nothing is lent, the nodes leave."""
        out: list[Said] = []
        for row, slot in sorted(self.scheduler.tasks):
            task = self.scheduler.released(row, slot, again=False)
            done = int(self.model.done_us[row, slot])
            out.append(("jobs", task.id, task.job("", "queued", done)))
            self._new_ledger.add(row)
        out += [self._entry(row) for row in sorted(self._new_ledger)]
        self._new_ledger.clear()
        for row, name in enumerate(self.fleet.names):
            out.append(("inventory", name, replace(self.inventory(row), pods=(), removed=True)))
        return out

    def _entry(self, row: int) -> Said:
        entry = self.scheduler.entry(row)
        return "ledger", entry_key(entry.node, entry.scheduler).decode(), entry

    def _changed(self, marked: set[int], rows: slice) -> list[int]:
        """Take the marked rows of a slice; a changed pod set gets its next revision."""
        found = sorted(row for row in marked if rows.start <= row < rows.stop)
        marked.difference_update(found)
        if marked is self._new_pods:
            for row in found:
                self.sampler.pods_rev[row] += 1
                self._renew_facts(row)
        return found

    def _renew_facts(self, row: int) -> None:
        if row not in self._online:
            self._online[row] = self.fleet.online_facts(row)
        facts = {fact.uid: fact for fact in self._online[row]}
        slots: dict[str, int] = {}
        for slot in np.flatnonzero(self.model.present[row]):
            at = (row, int(slot))
            fact = self.scheduler.tasks[at].fact(terminating=at in self._going)
            facts[fact.uid] = fact
            slots[fact.uid] = int(slot)
        self.facts[row], self._slots[row] = facts, slots

    def _finish(self, rows: slice, out: list[Said]) -> None:
        model = self.model
        done = model.running[rows] & (model.done_us[rows] >= model.work_us[rows])
        for at, slot_ in zip(*np.nonzero(done), strict=True):
            row, slot = rows.start + int(at), int(slot_)
            task = self._leave(row, slot, again=False)
            self.jobs_done += 1
            out.append(("jobs", task.id, task.job(self.fleet.names[row], "done", task.work_us)))

    def _bury(self, rows: slice, mono_us: int) -> None:
        """Evicted pods whose time is over; their work is queued again, from its beginning."""
        for row, slot in [at for at, gone_us in self._going.items() if mono_us >= gone_us]:
            if rows.start <= row < rows.stop:
                del self._going[row, slot]
                self._leave(row, slot, again=True)
                self.retries += 1

    def _leave(self, row: int, slot: int, *, again: bool) -> Task:
        self.model.end(row, slot)
        self.model.free(row, slot)
        self._reported_us.pop((row, slot), None)
        self._new_pods.add(row)
        self._new_ledger.add(row)
        return self.scheduler.released(row, slot, again=again)

    def _start(self, row: int, slot: int, task: Task, mono_us: int, out: list[Said]) -> None:
        self.model.place(row, slot, task.want_milli, task.work_us, task.memory_bytes)
        self._new_pods.add(row)
        self._new_ledger.add(row)
        self._reported_us[row, slot] = mono_us
        out.append(("jobs", task.id, task.job(self.fleet.names[row], "running", 0)))

    def _report(self, rows: slice, mono_us: int, out: list[Said]) -> None:
        """Progress of what runs, each job every `REPORT_US`."""
        due = [
            at
            for at, said_us in self._reported_us.items()
            if rows.start <= at[0] < rows.stop and mono_us - said_us >= REPORT_US
        ]
        for at in due:
            self._reported_us[at] = mono_us
            if at in self._going:
                continue
            task, done = self.scheduler.tasks[at], int(self.model.done_us[at])
            state = "suppressed" if self._suppressed(at[0]) else "running"
            out.append(("jobs", task.id, task.job(self.fleet.names[at[0]], state, done)))

    def _suppressed(self, row: int) -> bool:
        """Whether batch work on the node got clearly less than it wants."""
        want = int(np.where(self.model.running[row], self.model.want_milli[row], 0).sum())
        return int(self.model.batch_milli[row]) * 1000 < want * SUPPRESSED_PERMILLE
