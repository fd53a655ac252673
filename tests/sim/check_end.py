"""What must be true when the storm is over: the loop whole, the rule met, the state refolded.

`whole` is asked 15 s after the last fault, `verdict` at the end of a run.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from agents.log import Entry, Output, TickEntry
from agents.state import PartitionState
from agents.step import step
from schemas import codec
from schemas.errors import BadRecord
from schemas.records import Command, Tick
from streams import intake
from tests.sim import rule
from tests.sim.check_output import DOUBT
from tests.sim.worker import INCARNATION, Side

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster
    from tests.sim.node import SimNode

CONVERGED_PERMILLE = 25
FRESH_MS = 3_000


def whole(cluster: Cluster) -> None:
    """Every node obeys a live command; its capacity is fresh; the fleet is known."""
    now_ms = cluster.broker.now_ms
    for partition in range(cluster.plan.partitions):
        engine = cluster.owner[partition].engines.get(partition)
        if engine is None:
            continue  # it met a bug, which has been told
        if not engine.open or engine.state is None:
            _broken(cluster, "whole_again", f"partition {partition}: gate {engine.gate}")
        elif now_ms - engine.state.tick_ms > FRESH_MS:
            _broken(cluster, "whole_again", f"partition {partition}: no fresh tick")
    for node in cluster.nodes:
        agent = node.agent
        assert agent is not None, "healing starts every agent"
        if not agent.obey.lease.is_live(node.kernel.mono_us):
            _broken(cluster, "whole_again", f"{node.name}: no live command")
        said = cluster.outputs.capacity.get(node.name)
        if said is None or not said.new_work or said.reason in DOUBT:
            _broken(cluster, "whole_again", f"{node.name}: capacity {said}")
    facts = cluster.stage.said
    if facts is None or facts.reason or facts.nodes != len(cluster.nodes):
        _broken(cluster, "whole_again", f"fleet facts {facts}")


def verdict(cluster: Cluster) -> None:
    """At the end of the calm."""
    for node in cluster.nodes:
        _converged(cluster, node)
    for partition in range(cluster.plan.partitions):
        _refold(cluster, partition)
    _letters(cluster)


def _converged(cluster: Cluster, node: SimNode) -> None:
    allowed = rule.allowed_milli(node.kernel, cluster.policy, node.reserved_milli)
    quota = node.kernel.quota_milli
    if abs(quota - allowed) > max(node.kernel.cpu_milli * CONVERGED_PERMILLE // 1000, 20):
        _broken(cluster, "converges", f"{node.name}: quota {quota}, the rule {allowed}")
    wanted = sum(pod.want_milli for pod in node.kernel.of("best_effort"))
    used = node.kernel.best_effort_milli
    if used + len(node.kernel.pods) < min(wanted, quota):
        _broken(cluster, "converges", f"{node.name}: best effort uses {used} of {quota}")


def _refold(cluster: Cluster, partition: int) -> None:
    """The state folded anew from the log, in other batches, is the live one; so are the outputs."""
    engine = cluster.owner[partition].engines.get(partition)
    live = None if engine is None else engine.state
    if live is None:
        return  # it has been told
    base = cluster.cold.get(partition)
    state = PartitionState(partition, INCARNATION)
    if base is not None:
        state = PartitionState.from_arrays(*base.to_arrays())
    outputs, letters = fold_log(cluster, state, live.at, Random(cluster.report.seed))
    if state.digest() != live.digest():
        detail = (
            f"partition {partition}, from {base.at + 1 if base else 0}: {_differing(state, live)}"
        )
        _broken(cluster, "refold_equals_live", detail)
    if base is None:
        _same_outputs(cluster, partition, [*outputs, *letters], live.at)


def fold_log(
    cluster: Cluster, state: PartitionState, upto: int, dice: Random
) -> tuple[list[Output], list[Output]]:
    """Fold the log of a partition up to ``upto`` in random batches; outputs and dead letters."""
    side = Side(cluster.broker)
    side.read(state.partition)
    vector = dict(state.side)
    entries: list[Entry] = []
    letters: list[Output] = []
    for record in cluster.broker.whole("samples", state.partition)[state.at + 1 : upto + 1]:
        try:
            entry = intake.read(record)
        except BadRecord as error:
            letters.append(intake.dead_letter("samples", record, error))
            continue
        if isinstance(entry, Tick):
            admitted = side.admit(state.partition, vector, entry.side)
            assert admitted is not None, "everything has been read"
            for name, offset in entry.side.items():
                vector[name] = max(vector.get(name, -1), offset)
            entries.append(TickEntry(record.offset, record.timestamp, entry, admitted))
        else:
            entries.append(entry)
    outputs: list[Output] = []
    while entries:
        size = dice.choice((1, 7, 40, 300))
        outputs += step(state, entries[:size])
        entries = entries[size:]
    state.at = upto
    return outputs, letters


def _same_outputs(cluster: Cluster, partition: int, folded: list[Output], at: int) -> None:
    """Nothing was said that the log does not say, nothing was left out but expired commands."""
    said = {k: v for k, v in cluster.outputs.bytes.items() if k[0] == partition and k[1] <= at}
    for output in folded:
        key = (partition, output.offset, output.node, output.decider, output.topic, output.key)
        value = said.pop(key, None)
        if value is None:
            if not isinstance(output.record, Command):
                _broken(cluster, "refold_equals_live", f"never said: {key}")
        elif value != codec.encode(output.record):
            _broken(cluster, "refold_equals_live", f"said otherwise: {key}")
    if said:
        _broken(cluster, "refold_equals_live", f"not in the log: {sorted(said)[:3]}")


def _letters(cluster: Cluster) -> None:
    """Each malformed sample has its dead letter, and nothing else has one but refusals by law."""
    for place, kind in cluster.bad.items():
        topic, partition, _ = place
        if topic != "samples":
            continue
        cold = cluster.cold.get(partition)
        if place not in cluster.outputs.letters and cold is None:
            _broken(cluster, "bad_record_alone", f"{place} ({kind}) has no dead letter")
    intake_reasons = ("superseded_boot", "backward_clock", "future_clock", "duplicate")
    for place, reason in cluster.outputs.letters.items():
        if place not in cluster.bad and reason not in intake_reasons:
            _broken(cluster, "bad_record_alone", f"{place} is no bad record: {reason}")


def _differing(a: PartitionState, b: PartitionState) -> str:
    """Which parts of two states differ."""
    (meta, arrays), (other_meta, other_arrays) = a.to_arrays(), b.to_arrays()
    names = [k for k in meta if meta[k] != other_meta[k]]
    names += [k for k in arrays if arrays[k].tobytes() != other_arrays[k].tobytes()]
    first = {k: (meta[k], other_meta[k]) for k in names[:2] if k in meta and k != "seats"}
    return f"{names} {first}"[:600]


def _broken(cluster: Cluster, invariant: str, detail: str) -> None:
    cluster.report.broken(invariant, cluster.at_ms, detail)
