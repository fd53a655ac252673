"""Pods that were ordered out: begun, looked after, ended, answered.

`node_agent.obey` hands over what the lease let pass, and calls `step` each period and whenever
`wake` asked for it. A pod that is given time ends by itself or is killed when that is over; a kill
that the kernel refuses is tried again for `RETRY_US`. What had begun before a restart goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress

from node_agent import originals
from node_agent.actuators import evict, pods
from node_agent.actuators.failure import REFUSALS, reason_of
from node_agent.answers import Answers, Source
from node_agent.executors import going
from node_agent.executors.cri import Runtime
from node_agent.executors.going import Order
from node_agent.executors.way import Way, choose
from node_agent.isolation import Isolation
from node_agent.journal import Journal
from node_agent.lease import NodeLease
from node_agent.originals import Trees
from schemas.policy import Eviction
from schemas.records import Ack, Command, Outcome, PodFact

RETRY_US = 30_000_000  # a kill that failed is tried again for so long
STEP_MS = 100  # while a pod is given time
AFTER_GRACE = "killed_after_grace"
INTERRUPTED = "interrupted"

log = logging.getLogger(__name__)


class Evictions:
    """The evictions of one start of the agent, and those it found begun."""

    def __init__(
        self,
        journal: Journal,
        answers: Answers,
        lease: NodeLease,
        isolation: Isolation,
        mono_us: Callable[[], int],
        runtime: Runtime,
        wake: Callable[[int], None],
        *,
        dry_run: bool,
    ) -> None:
        """``wake``: asks for a `step` in so many milliseconds."""
        self.evicted_pods = self.kernel_refusals = 0
        self.killing = 0  # orders that are: the brakes of all best-effort work are off meanwhile
        self.facts: Mapping[str, PodFact] = {}
        self.paths: Mapping[str, str] = {}
        self.trees: Trees | None = None
        self._journal, self._answers, self._lease = journal, answers, lease
        self._isolation, self._mono_us, self._runtime = isolation, mono_us, runtime
        self._wake, self._dry_run = wake, dry_run
        self._orders: list[Order] = []
        self._stops: set[asyncio.Task[str]] = set()  # asked of the runtime, and not answered yet
        self._recalled = False
        self._next_us = 0

    def close(self) -> None:
        """The agent ends; a runtime that was asked goes on by itself."""
        for task in self._stops:
            task.cancel()

    async def order(self, command: Command, source: Source, uids: tuple[str, ...]) -> list[Ack]:
        """Begin; killed pods stand in the ack at once, others in a second one."""
        trees, local = self.trees, source == "local"
        if trees is None:
            return [self._refused(command, local, "no_best_effort_group")]
        try:
            victims = [self._victim(trees, uid) for uid in uids]
            left = {v.uid: trees.cpu.identity(v.group) or 0 for v in victims}
        except pods.NotAVictim as error:
            return [self._refused(command, local, error.reason)]
        if self._dry_run:
            return [self._end(Order(command, local, Way("kill"), 0, {}), "dry_run")]
        policy = self._lease.policy
        way = choose(
            Eviction() if policy is None else policy.eviction,
            command.decider,
            emergency=local,
            has_runtime=self._runtime.socket is not None,
        )
        order = Order(command, local, way, self._mono_us(), left)
        try:
            self._answers.intent(command, source, uids)
        except OSError as error:
            return [self._refused(command, local, reason_of(error))]
        self._orders.append(order)
        return await self._begin(order, trees)

    async def step(self) -> list[Ack]:
        """Look after what has begun."""
        acks: list[Ack] = []
        trees = self.trees
        if trees is None:
            return acks
        if not self._recalled:
            self._recalled = True
            acks += self._recall()
        for order in list(self._orders):
            if not order.busy:
                acks += await self._look(order, trees)
        if any(order.way.executor != "kill" for order in self._orders):
            self._look_again()
        return acks

    def _look_again(self) -> None:
        """Soon, whoever asks how often."""
        now_us = self._mono_us()
        if now_us >= self._next_us:
            self._next_us = now_us + STEP_MS * 1000
            self._wake(STEP_MS)

    async def _begin(self, order: Order, trees: Trees) -> list[Ack]:
        if order.way.executor == "kill":
            return await self._kill(order, trees)
        for uid in order.left:
            self._isolation.let_go(self.paths[uid])
            if order.way.executor == "cri":
                stop = asyncio.create_task(self._runtime.stop(uid, order.way.wait_ms))
                order.stops[uid] = stop
                self._stops.add(stop)
                stop.add_done_callback(self._stops.discard)
            elif order.way.executor == "term":
                self._terminate(order, trees, uid)
        handed = order.way.executor == "api"
        self._look_again()
        return [
            self._answers.outcome(
                order.command,
                "handed_over" if handed else "started",
                order.way.executor,
                tuple(order.left),
                order.line(),
            )
        ]

    async def _look(self, order: Order, trees: Trees) -> list[Ack]:
        """Who has gone, who needs another way, whose time is over."""
        try:
            self._note_gone(order, trees)
        except REFUSALS as error:
            return self._said(order, reason_of(error))
        except pods.NotAVictim as error:  # it is somebody else now
            return [self._end(order, error.reason)]
        if not order.left:
            return [self._end(order, "")]
        now_us = self._mono_us()
        if now_us < order.until_us:
            for uid in order.left:
                self._follow(order, trees, uid)
            return []
        if not order.way.kills:
            return [self._end(order, "not_gone")]
        if order.killing_us is not None and now_us - order.killing_us > RETRY_US:
            return [self._end(order, order.failed or "still_populated")]
        return await self._kill(order, trees)

    async def _kill(self, order: Order, trees: Trees) -> list[Ack]:
        """All that are left, one after the other; the rest waits for the next step."""
        if order.way.executor != "kill":
            order.reason = order.reason or AFTER_GRACE
        if order.killing_us is None:
            order.killing_us = self._mono_us()
        order.busy = True
        self.killing += 1
        try:
            return await self._kill_left(order, trees)
        finally:
            self.killing -= 1
            order.busy = False

    async def _kill_left(self, order: Order, trees: Trees) -> list[Ack]:
        for uid in list(order.left):
            try:
                victim = self._victim(trees, uid)
                self._isolation.let_go(self.paths[uid])
                done = await asyncio.to_thread(self._end_pod, trees, victim)
            except pods.NotAVictim as error:
                return [self._end(order, error.reason)]
            except REFUSALS as error:
                self.kernel_refusals += 1
                return self._said(order, reason_of(error))
            if not done.empty:
                return self._said(order, "still_populated")
            self._gone(order, uid)
        return [self._end(order, "")]

    def _end_pod(self, trees: Trees, victim: pods.BestEffortPod) -> evict.Evicted:
        """In a worker thread: originals first, then lift, kill, wait, put back."""
        todo = self._planned(trees, victim)
        kept = originals.keep_brakes(self._journal, trees.root, todo.lift)
        try:
            return evict.apply(trees.cpu, trees.unified, todo)
        finally:
            with suppress(OSError):  # a full disk: what is still remembered does no harm
                originals.forget_brakes(self._journal, trees.cpu, kept)

    def _planned(self, trees: Trees, victim: pods.BestEffortPod) -> evict.EvictPlan:
        """Whose brakes are to be lifted."""
        return evict.plan(trees.cpu.version, victim, evict.observe(trees.cpu, victim))

    def _terminate(self, order: Order, trees: Trees, uid: str) -> None:
        """Its processes are asked to end. What the kernel refuses is left to the kill."""
        try:
            todo = self._planned(trees, self._victim(trees, uid))
            originals.keep_brakes(self._journal, trees.root, todo.lift)
            evict.terminate(trees.cpu, trees.unified, todo)
        except REFUSALS as error:
            self.kernel_refusals += 1
            order.reason = order.reason or reason_of(error)

    def _follow(self, order: Order, trees: Trees, uid: str) -> None:
        """A runtime that failed: the pod's processes are asked to end instead."""
        task = order.stops.get(uid)
        if task is None or not task.done():
            return
        del order.stops[uid]
        said = task.result()
        if said:
            order.reason = order.reason or said
            self._terminate(order, trees, uid)

    def _note_gone(self, order: Order, trees: Trees) -> None:
        for uid, identity in list(order.left.items()):
            if uid not in self.facts:
                self._gone(order, uid)
                continue
            victim = self._victim(trees, uid)
            if trees.cpu.identity(victim.group) != identity or evict.is_empty(
                trees.cpu, trees.unified, victim
            ):
                self._gone(order, uid)

    def _gone(self, order: Order, uid: str) -> None:
        del order.left[uid]
        order.gone.append(uid)
        self.evicted_pods += 1

    def _victim(self, trees: Trees, uid: str) -> pods.BestEffortPod:
        return pods.best_effort_pod(uid, self.facts, self.paths, trees.root)

    def _said(self, order: Order, failed: str) -> list[Ack]:
        """It is tried again; said when it is another failure than before."""
        if failed == order.failed:
            return []
        order.failed = failed
        return [self._answer(order, failed)]

    def _end(self, order: Order, failed: str) -> Ack:
        """The last word of an order."""
        if order in self._orders:
            self._orders.remove(order)
        return self._answer(order, failed)

    def _answer(self, order: Order, failed: str) -> Ack:
        gone, dry = tuple(order.gone), failed == "dry_run"
        if order.local:
            outcome: Outcome = "failed" if failed and not dry else "local"
            return self._answers.local_eviction(order.command, outcome, failed, gone)
        if failed and not dry:
            return self._answers.outcome(order.command, "failed", failed, gone)
        return self._answers.outcome(order.command, "applied", failed or order.reason, gone)

    def _refused(self, command: Command, local: bool, reason: str) -> Ack:
        """Nothing was tried."""
        if local:
            return self._answers.local_eviction(command, "failed", reason, ())
        return self._answers.outcome(command, "refused", reason)

    def _recall(self) -> list[Ack]:
        """What the start before had begun: looked after, or, where it was killing, answered."""
        acks: list[Ack] = []
        for line in list(self._journal.state.commands.values()):
            order = going.recalled(line, self._lease.node)
            if order is not None:
                self._orders.append(order)
            elif line["kind"] == "intent":
                command = going.command_of(line, self._lease.node)
                acks.append(self._answers.outcome(command, "failed", INTERRUPTED))
        return acks
