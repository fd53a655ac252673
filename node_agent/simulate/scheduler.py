"""The small scheduler of the simulation: lends up to capacity, keeps the ledger. Pure.

The world feeds it capacity and the ends of pods; it answers with placements. It lends by request,
never beyond what a node offers, first to the node with most CPU left. A node that offers less than
is lent keeps what runs. Mid work it has none: what is offered of it is counted, not lent. All
randomness is the seed's.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agents.placement.borrowers import may_borrow
from node_agent.simulate.fleet import BATCH_PRIORITY, MIB, Fleet
from node_agent.simulate.trace import IntArray
from schemas.records import Capacity, Job, LedgerEntry, PodFact

NAME = "simulated"
WORKLOAD = "batch/jobs"
REQUESTS_MILLI = (500, 1000, 2000, 4000)
MEMORY_MIB = (256, 512, 1024, 2048, 4096)
WANT_PERMILLE = (800, 2500)  # of the request: batch work takes more CPU when it may
STALE_US = 900_000_000
WORK_S = (15, 90)  # at the CPU it wants


@dataclass(slots=True)
class Task:
    """One piece of batch work; the numbers of what it asks for and what it really wants."""

    id: str
    request_milli: int
    memory_bytes: int
    want_milli: int
    work_us: int
    retries: int = 0

    @property
    def uid(self) -> str:
        """Uid of its pod: every try has its own."""
        return f"{self.id}-try-{self.retries}"

    def fact(self, *, terminating: bool) -> PodFact:
        """Its pod as inventory says it."""
        return PodFact(
            uid=self.uid,
            name=self.id,
            namespace="batch",
            workload=WORKLOAD,
            qos="BE",
            priority_class="batch",
            priority=BATCH_PRIORITY,
            cpu_request_milli=self.request_milli,
            memory_request_bytes=self.memory_bytes,
            memory_limit_bytes=self.memory_bytes,
            terminating=terminating,
        )

    def job(self, node: str, state: str, done_us: int) -> Job:
        """What it achieved so far; ``state`` as in `schemas.records.Job`."""
        progress = min(1000, done_us * 1000 // self.work_us)
        return Job(self.id, node, state, progress, done_us, self.retries)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Placement:
    """This task goes there."""

    row: int
    slot: int
    task: Task


class Scheduler:
    """Queue, offers and what is lent; ``tasks`` holds the task in each taken slot."""

    def __init__(self, fleet: Fleet, seed: int, backlog: int) -> None:
        """``backlog``: how many tasks always wait, so that batch work never runs out."""
        nodes = len(fleet.names)
        self.queue: deque[Task] = deque()
        self.tasks: dict[tuple[int, int], Task] = {}
        self.lent_milli: IntArray = np.zeros(nodes, np.int64)
        self.lent_bytes: IntArray = np.zeros(nodes, np.int64)
        self._fleet, self._backlog = fleet, backlog
        self._random = random.Random(seed)  # noqa: S311 - a seeded world, not a secret
        self._seed, self._made = seed, 0
        self._offer_milli: IntArray = np.zeros(nodes, np.int64)
        self._offer_bytes: IntArray = np.zeros(nodes, np.int64)
        self._mid_milli: IntArray = np.zeros(nodes, np.int64)
        self._heard_us: IntArray = np.zeros(nodes, np.int64)
        self._open: NDArray[np.bool_] = np.zeros(nodes, np.bool_)
        self._releasing: dict[tuple[int, int], Task] = {}

    def hear(self, row: int, said: Capacity | None, mono_us: int) -> None:
        """A node's capacity as published; None: withdrawn, what runs there stays.

        A whitelist without `WORKLOAD` opens the node to others only.
        """
        if said is None:
            self.offer(row, 0, 0, mono_us, new_work=False)
            self._mid_milli[row] = 0
            return
        new_work = said.new_work and may_borrow(said.workloads, WORKLOAD)
        self.offer(row, said.batch_cpu_milli, said.batch_memory_bytes, mono_us, new_work=new_work)
        self._mid_milli[row] = said.mid_cpu_milli

    def offer(
        self, row: int, cpu_milli: int, memory_bytes: int, mono_us: int, *, new_work: bool
    ) -> None:
        """What may be lent on a node; after `STALE_US` of silence nothing new goes there."""
        self._heard_us[row] = mono_us
        self._offer_milli[row], self._offer_bytes[row] = cpu_milli, memory_bytes
        self._open[row] = new_work

    @property
    def offered_milli(self) -> int:
        """Batch CPU on offer, all nodes."""
        return int(self._offer_milli.sum())

    @property
    def offered_mid_milli(self) -> int:
        """Mid CPU on offer, all nodes."""
        return int(self._mid_milli.sum())

    def place(
        self, free: NDArray[np.bool_], rows: slice, most: int, mono_us: int
    ) -> list[Placement]:
        """Up to ``most`` tasks from the queue's head onto ``rows``; ``free`` [node, slot]."""
        self._fill()
        out: list[Placement] = []
        free = free[rows].copy()
        cpu = self._offer_milli[rows] - self.lent_milli[rows]
        memory = self._offer_bytes[rows] - self.lent_bytes[rows]
        able = self._open[rows] & free.any(axis=1) & (mono_us - self._heard_us[rows] < STALE_US)
        while self.queue and len(out) < most:
            task = self.queue[0]
            fits = able & (cpu >= task.request_milli) & (memory >= task.memory_bytes)
            if not fits.any():
                break
            at = int(np.argmax(np.where(fits, cpu, -1)))
            slot = int(np.argmax(free[at]))
            free[at, slot] = False
            able[at] = free[at].any()
            cpu[at] -= task.request_milli
            memory[at] -= task.memory_bytes
            out.append(Placement(rows.start + at, slot, self._take(rows.start + at, slot)))
        return out

    def releasing(self, row: int, slot: int) -> Task:
        """Its pod is going; what it was lent stays lent until `released`."""
        self._releasing[row, slot] = self.tasks[row, slot]
        return self.tasks[row, slot]

    def released(self, row: int, slot: int, *, again: bool) -> Task:
        """The pod is gone: nothing is lent for it any more; ``again`` queues it once more."""
        task = self.tasks.pop((row, slot))
        self._releasing.pop((row, slot), None)
        self.lent_milli[row] -= task.request_milli
        self.lent_bytes[row] -= task.memory_bytes
        if again:
            task.retries += 1
            self.queue.append(task)
        return task

    def entry(self, row: int) -> LedgerEntry:
        """All that is lent on a node, pods that are going included."""
        slots = range(self._fleet.batch_slots)
        going = [self._releasing[row, slot] for slot in slots if (row, slot) in self._releasing]
        return LedgerEntry(
            node=self._fleet.names[row],
            scheduler=NAME,
            cpu_milli=int(self.lent_milli[row]),
            memory_bytes=int(self.lent_bytes[row]),
            releasing_cpu_milli=sum(task.request_milli for task in going),
            releasing_memory_bytes=sum(task.memory_bytes for task in going),
            pods=tuple(self.tasks[row, slot].uid for slot in slots if (row, slot) in self.tasks),
        )

    def _take(self, row: int, slot: int) -> Task:
        task = self.queue.popleft()
        self.tasks[row, slot] = task
        self.lent_milli[row] += task.request_milli
        self.lent_bytes[row] += task.memory_bytes
        return task

    def _fill(self) -> None:
        while len(self.queue) < self._backlog:
            self.queue.append(self._new())

    def _new(self) -> Task:
        draw = self._random
        request = draw.choice(REQUESTS_MILLI)
        want = request * draw.randint(*WANT_PERMILLE) // 1000
        self._made += 1
        return Task(
            id=f"job-{self._seed}-{self._made:06}",
            request_milli=request,
            memory_bytes=draw.choice(MEMORY_MIB) * MIB,
            want_milli=want,
            work_us=want * draw.randint(*WORK_S) * 1000,
        )
