"""The simulation has teeth: with one rule of the product broken, an invariant named so breaks.

Each break is a few lines over the real part. The storm is narrowed to what shows it soon; whole
runs are tried until one does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import pytest

import agents.allowance
import agents.capacity
import agents.evict_memory
import agents.eviction.gate
import agents.suppress
import agents.ticks
import node_agent.actuators.pods
import node_agent.lease
import scheduler_bridge.reconcile
import streams.intake
import tests.sim.worker
from node_agent.lease import NodeLease, Target
from schemas import codec
from streams.engine import Ports
from tests.sim import faults
from tests.sim.cluster import run
from tests.sim.faults import Fault
from tests.sim.findings import INVARIANTS

RUNS = 40
Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Tooth:
    """A broken rule, and the invariant that must notice."""

    invariant: str
    break_it: Callable[[Patch], None]
    storm: tuple[Fault, ...]

    @property
    def name(self) -> str:
        return f"{self.invariant}-{self.break_it.__name__}"


def raises_without_a_live_command(patch: Patch) -> None:
    patch.setattr(NodeLease, "is_live", lambda self, _: self.standing is not None)


def order_is_not_compared(patch: Patch) -> None:
    numbers = count()
    patch.setattr(node_agent.lease, "order_of", lambda _: (7, next(numbers)))


def answers_are_not_remembered(patch: Patch) -> None:
    order_is_not_compared(patch)
    patch.setattr(NodeLease, "remember", lambda *_: None)


def online_use_is_not_subtracted(patch: Patch) -> None:
    real = agents.allowance.allow

    def allow(capacity: Any, percent: int, online: Any, *others: Any) -> Any:
        return real(capacity, percent, online * 0, *others)

    patch.setattr(agents.suppress, "allow", allow)


def what_fell_never_rises(patch: Patch) -> None:
    real = agents.allowance.adjust

    def adjust(capacity: Any, wanted: Any, in_force: Any, *others: Any) -> Any:
        target = real(capacity, wanted, in_force, *others)
        return np.where(in_force >= 0, np.minimum(target, in_force), target)

    patch.setattr(agents.suppress, "adjust", adjust)


def the_floor_is_zero(patch: Patch) -> None:
    real = NodeLease.target

    def target(self: NodeLease, mono_us: int) -> Target:
        found = real(self, mono_us)
        floor = found.allow_milli == self.floor_milli
        return Target(0, found.reason) if floor else found

    patch.setattr(NodeLease, "target", target)


def anybody_may_be_a_victim(patch: Patch) -> None:
    for module in (node_agent.lease, node_agent.actuators.pods):
        patch.setattr(module, "refusal", lambda *_: None)
    patch.setattr(node_agent.actuators.pods, "inside", lambda path, _: (path,))


def an_image_claims_less_than_it_holds(patch: Patch) -> None:
    """As if `at` were not in the image but a little older: records are folded twice."""
    real = tests.sim.worker.newest_image

    def older(*args: Any) -> Any:
        state = real(*args)
        if state is not None:
            state.at = max(state.at - 6, -1)
        return state

    patch.setattr(tests.sim.worker, "newest_image", older)


def outputs_depend_on_the_process(patch: Patch) -> None:
    numbers = count()
    patch.setattr(agents.suppress, "_reason", lambda *_, **__: f"lower {next(numbers)}")


def stale_counts_as_fresh(patch: Patch) -> None:
    def fresh(state: Any, view: Any, rows: Any) -> Any:
        return np.zeros(len(rows), dtype=np.int64)

    patch.setattr(agents.capacity, "_condition", fresh)


def capacity_has_no_guard(patch: Patch) -> None:
    real = agents.capacity._guard

    def unguarded(state: Any, view: Any, whole: Any) -> None:
        real(state, view, whole)
        whole.offer = whole.computed

    patch.setattr(agents.capacity, "_guard", unguarded)


def zero_is_taken_at_its_word(patch: Patch) -> None:
    real = agents.evict_memory.decide

    def decide(state: Any, wave: Any, folded: Any, out: Any) -> None:
        folded.memory_available = np.where(folded.memory_available == 0, 1, folded.memory_available)
        real(state, wave, folded, out)

    patch.setattr(agents.evict_memory, "decide", decide)


def evictions_have_no_budget(patch: Patch) -> None:
    patch.setattr(agents.evict_memory, "_budget", lambda *_: (99, "memory_full"))


def evictions_have_no_cool_down(patch: Patch) -> None:
    patch.setattr(agents.eviction.gate, "cooled", lambda *_: True)
    real = NodeLease._gate

    def gate(self: NodeLease, *args: Any) -> Any:
        self.evicted_mono_us = None
        return real(self, *args)

    patch.setattr(NodeLease, "_gate", gate)


def leases_are_not_written(patch: Patch) -> None:
    patch.setattr(agents.ticks, "renew", lambda *_: None)


def any_encoding_is_read(patch: Patch) -> None:
    real = codec.encoding_of

    def lenient(headers: Iterable[tuple[str, bytes | None]] | None) -> bytes:
        said = dict(headers or ())
        return real(codec.PACKED_HEADERS if said["enc"] == b"riddle" else headers)

    patch.setattr(codec, "encoding_of", lenient)


def a_bad_record_is_an_error(patch: Patch) -> None:
    def strict(record: Any, check: Any) -> Any:
        try:
            return streams.intake.read(record, check)
        except Exception as error:
            raise RuntimeError("unexpected") from error

    patch.setattr(tests.sim.worker, "Ports", partial(Ports, read=strict))


def patches_come_in_any_order(patch: Patch) -> None:
    patch.setattr(scheduler_bridge.reconcile, "_urgency", lambda each, _: each.node)


TEETH = (
    Tooth(
        "raise_needs_live_command", raises_without_a_live_command, (faults.forged, faults.outage)
    ),
    Tooth("order_never_back", order_is_not_compared, (faults.forged,)),
    Tooth("twice_is_once", answers_are_not_remembered, (faults.replayed,)),
    Tooth("within_law", online_use_is_not_subtracted, (faults.mute, faults.outage)),
    Tooth("not_below_floor", the_floor_is_zero, (faults.agent_down,)),
    Tooth("online_untouched", anybody_may_be_a_victim, (faults.forged,)),
    Tooth("refold_equals_live", an_image_claims_less_than_it_holds, (faults.worker_dies,)),
    Tooth("equal_key_equal_bytes", outputs_depend_on_the_process, (faults.zombie,)),
    Tooth("doubt_keeps_what_is_lent", stale_counts_as_fresh, (faults.mute, faults.agent_down)),
    Tooth("capacity_not_negative", capacity_has_no_guard, (faults.churn,)),
    Tooth("zero_evicts_nobody", zero_is_taken_at_its_word, (faults.counters,)),
    Tooth("blast_radius", evictions_have_no_budget, (faults.memory,)),
    Tooth("cool_down", evictions_have_no_cool_down, (faults.memory,)),
    Tooth("whole_again", leases_are_not_written, (faults.outage,)),
    Tooth("converges", what_fell_never_rises, (faults.agent_down,)),
    Tooth("bad_record_alone", any_encoding_is_read, (faults.malformed,)),
    Tooth("no_bug", a_bad_record_is_an_error, (faults.malformed,)),
    Tooth("bridge_in_order", patches_come_in_any_order, (faults.churn, faults.mute)),
)


@pytest.mark.parametrize("tooth", TEETH, ids=[tooth.name for tooth in TEETH])
def test_a_broken_rule_is_noticed(tooth: Tooth, monkeypatch: Patch) -> None:
    monkeypatch.setattr(faults, "STORM", tuple((fault, 1) for fault in tooth.storm))
    tooth.break_it(monkeypatch)
    found: Sequence[str] = ()
    for seed in range(RUNS):
        found = sorted(run(seed).names)
        if tooth.invariant in found:
            return
    pytest.fail(f"{RUNS} runs did not notice; the last one found {found}")


def test_every_invariant_has_a_tooth() -> None:
    """``bounded`` has its own long run in test_promises."""
    assert {tooth.invariant for tooth in TEETH} == set(INVARIANTS) - {"bounded"}
