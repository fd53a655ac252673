"""r2: whatever happens to a node, capacity falls within one tick and rises at the policy's rate."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agents.capacity_record import COLD, FRESH, REASONS, WITHDRAWN
from agents.capacity_terms import look
from schemas.records import Capacity, LedgerEntry
from tests.agents.worlds import CAPACITY_MILLI, GIB, MEMORY, PARTITION, Node, World, of, online

POLICY = """
name: default
rollout: {stage: expand}
reservation: {warm_ms: 2000}
capacity: {refresh_ms: 100, change_permille: 0}
mid: {unallocated_percent: 40}
"""
PERMILLE_PER_MIN = 100
DOUBT = REASONS[2:4]
USE = st.integers(0, CAPACITY_MILLI)


class Guards(RuleBasedStateMachine):
    """One node under any use, silence, loans and changes of its pods; every tick is judged."""

    def __init__(self) -> None:
        super().__init__()
        self.node = Node(pods=(online("a", cpu_request_milli=3000), online("b")))
        self.world = World(POLICY, self.node)
        self.offer = [0] * 4
        self.problems: list[str] = []

    @initialize(milli=USE)
    def begin(self, milli: int) -> None:
        self.world.say(self.node.sample([milli // 2, milli // 2]), after_ms=0)
        self.offer = self.world.value(self.node, "offer")

    @rule(milli=USE, system=USE, seconds=st.integers(1, 4), used=st.integers(0, 12))
    def work(self, milli: int, system: int, seconds: int, used: int) -> None:
        sizes = [used * GIB, GIB]
        for _ in range(seconds):
            half = milli // 2
            sample = self.node.sample([half, half], system=system, used=sizes)
            self.world.say(sample, after_ms=1000)
            self._tick(0)

    @rule(gap_ms=st.sampled_from([1000, 2500, 5000, 60_000, 950_000]))
    def silence(self, gap_ms: int) -> None:
        self.node.advance([0, 0], elapsed_ms=gap_ms)
        self._tick(gap_ms)

    @rule(milli=USE, gib=st.integers(0, 20), mid=USE)
    def lend(self, milli: int, gib: int, mid: int) -> None:
        entry = LedgerEntry("n0", "yarn", milli, gib * GIB, mid_cpu_milli=mid)
        self._tick(1000, ("ledger", PARTITION, b"n0", entry))

    @rule()
    def other_pods(self) -> None:
        """The node samples a pod set that no inventory has named yet."""
        self.node.rev += 1

    @rule()
    def pods_are_known(self) -> None:
        self._tick(1000, ("inventory", PARTITION, b"n0", self.node.inventory()))

    @invariant()
    def every_tick_kept_the_promise(self) -> None:
        assert self.problems == []

    def _tick(self, after_ms: int, *side: Any) -> None:
        before, before_ms = self.offer, self.world.state.tick_ms
        decided = self.world.value(self.node, "offer_ms")
        out = of(self.world.tick(after_ms, *side), "capacity")
        if b"n0" not in self.world.state.seats:  # silent for an hour, and forgotten
            self.world.know(self.node)
            self.offer = self.world.value(self.node, "offer")
            return
        if self.world.value(self.node, "offer_ms") == decided and not out:
            return  # a tick too early to decide
        row = np.array([self.world.state.seats[b"n0"].row])
        computed = look(self.world.state, self.world.log_ms, row).computed[0].tolist()
        lent = self.world.value(self.node, "lent")
        self.offer = self.world.value(self.node, "offer")
        elapsed_ms = self.world.log_ms - before_ms
        reason = self._reason(out)
        for kind, now in enumerate(self.offer):
            whole = (CAPACITY_MILLI, MEMORY)[kind % 2]
            rise = whole * min(PERMILLE_PER_MIN * elapsed_ms, 60_000 * 1000) // 60_000_000 + 1
            stands = max(before[kind], min(lent[kind], max(computed[kind], 0)))
            self._judge(kind, now, before[kind], stands, computed[kind], lent[kind], rise, reason)

    def _reason(self, out: list[Capacity]) -> str:
        said = out[-1].reason if out else ""
        return said if said in REASONS else ""

    def _judge(
        self, kind: int, now: int, before: int, stands: int, computed: int, lent: int, rise: int,
        reason: str,
    ) -> None:  # fmt: skip
        facts = f"{reason} {kind}: {before} -> {now}, computed {computed}, lent {lent}, {rise}"
        if now < 0:
            self.problems.append(f"negative: {facts}")
        if reason == REASONS[FRESH]:
            if now > max(computed, 0):
                self.problems.append(f"not down at once: {facts}")
            if before >= 0 and now > stands + rise:
                self.problems.append(f"up too fast: {facts}")
            if now < min(stands, max(computed, 0)):
                self.problems.append(f"lower than it must be: {facts}")
        elif reason == REASONS[COLD] and now != lent:
            self.problems.append(f"cold is what is lent: {facts}")
        elif reason in DOUBT and now < min(before, lent):
            self.problems.append(f"below what is lent, in doubt: {facts}")
        elif reason == REASONS[WITHDRAWN] and now > max(lent, 0):
            self.problems.append(f"withdrawn above what is lent: {facts}")


TestR2FallsAtOnceRisesSlowlyHoldsInDoubt = Guards.TestCase
TestR2FallsAtOnceRisesSlowlyHoldsInDoubt.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None
)
