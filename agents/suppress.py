"""CPU that best-effort work may use on a node: the peer's formula, once a sample, at once.

`agents.step` calls `decide` for each wave. Formulas: `agents.allowance`; where the policy bounds by
CPU set, `agents.suppress_cpuset` chooses the CPUs. Amounts are millicores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agents import emit, fold, law, slo_state, suppress_cpuset
from agents.allowance import adjust, allow, floor_of
from agents.table import ABSENT, Bools, Field, Ints

if TYPE_CHECKING:
    from agents.log import Output
    from agents.state import PartitionState
    from agents.wave import Wave

NODE_FIELDS = (
    Field("said_milli", fill=ABSENT),  # the last command's; ABSENT: none yet
    Field("said_milli_ms", fill=ABSENT),
    Field("said_free", np.int8),  # 1: the last command lifted every bound
)
POD_FIELDS: tuple[Field, ...] = ()
CORE_MILLI = 1000
CALLED_BACK = "called_back"
"""The term, of decisions that it bounds: what a service that suffers leaves of the allowance."""
SLO = "slo"
"""The reason of a bound that is lowered for a service that has left its objective."""
TERMS = ("capacity", "online", "host", "system", "reserved", "allow", "in_force", "floor")


def decide(state: PartitionState, wave: Wave, folded: fold.Folded, out: list[Output]) -> None:
    """Commands of this wave, and the decision record beside each."""
    nodes, rows = state.nodes, folded.rows
    capacity = nodes.take("capacity", rows)[:, 0]
    terms = _terms(state, folded, capacity)
    terms["wanted"] = wanted = terms["allow"]
    enabled, ignore_permille = terms["enabled"] != 0, terms["ignore_permille"]
    whole = -(-capacity // CORE_MILLI) * CORE_MILLI
    said, said_ms = nodes["said_milli"].take(rows), nodes["said_milli_ms"].take(rows)
    by_cpuset = suppress_cpuset.bound(state, rows)
    in_force = np.where(folded.quota_known & ~by_cpuset, folded.quota_milli, said)
    terms["in_force"] = in_force
    if state.policy is None:
        target, sure = terms["floor"], capacity >= 0
    else:
        raise_permille = law.column(state, rows, "suppress.raise_permille")
        most = slo_state.bounds(state, rows)  # what is left for a service that suffers
        if most is not None:
            terms["wanted"] = wanted = np.where(most >= 0, np.minimum(wanted, most), wanted)
        bound = adjust(whole, wanted, in_force, terms["floor"], ignore_permille, raise_permille)
        target = np.where(enabled, bound, capacity)  # off: what was bound is set free
        sure = (capacity >= 0) & np.where(enabled, folded.node_milli >= 0, said >= 0)
    far = np.abs(target - said) * 1000 >= np.maximum(whole * ignore_permille, 1)
    moved = far | ((target != said) & (target == terms["floor"]))
    due = folded.log_ms - said_ms >= state.law.loop.refresh_ms
    astray = _astray(state, folded, said, said_ms, np.maximum(whole * ignore_permille, 1))
    others = suppress_cpuset.choose(state, wave, folded, by_cpuset, target, sure)
    send = sure & ((said < 0) | moved | due | (astray & ~by_cpuset) | others)
    send &= enabled | (nodes["said_free"].take(rows) == 0)
    terms["others"] = others.astype(np.int64)
    _say(state, wave, folded, target, said, terms, send, out)


def _astray(
    state: PartitionState, folded: fold.Folded, said: Ints, said_ms: Ints, small: Ints
) -> Bools:
    """Where something else than what was said is in force, for as long as a report takes.

    The command may never have come: withheld as expired, said by nobody in a cold refold, lost with
    a start of the agent.
    """
    off = np.abs(folded.quota_milli - said) * 1000 >= small
    late = folded.log_ms - said_ms >= state.law.loop.report_ms
    result: Bools = folded.quota_known & off & late
    return result


def _terms(state: PartitionState, folded: fold.Folded, capacity: Ints) -> dict[str, Ints]:
    """The sum's terms [w]; with an unknown pod set, all that is not best effort is online."""
    nodes, sums, rows = state.nodes, folded.sums, folded.rows
    reserved = nodes.take("reserved", rows)[:, 0]
    node = np.maximum(folded.node_milli, 0)
    rest = np.maximum(node - np.maximum(folded.be_milli, 0), 0)
    known = folded.known
    online = np.where(known, sums[:, fold.ONLINE], rest)
    host = np.where(known, sums[:, fold.HOSTS], 0)
    system = np.where(known, np.maximum(node - sums[:, fold.PODS], 0), 0)
    floor_percent = law.column(state, rows, "suppress.floor_percent")
    floor_milli = law.column(state, rows, "suppress.floor_milli")
    threshold = law.column(state, rows, "suppress.threshold_percent")
    return {
        "capacity": capacity,
        "online": online,
        "host": host,
        "system": system,
        "reserved": reserved,
        "allow": allow(capacity, threshold, online, host, system, reserved),
        "floor": floor_of(capacity, floor_milli, floor_percent),
        "enabled": law.column(state, rows, "suppress.enabled"),
        "ignore_permille": law.column(state, rows, "suppress.ignore_permille"),
    }


def _say(
    state: PartitionState, wave: Wave, folded: fold.Folded, target: Ints, said: Ints,
    terms: dict[str, Ints], send: Bools, out: list[Output],
) -> None:  # fmt: skip
    chosen = np.flatnonzero(send)
    if not len(chosen):
        return
    columns = {name: terms[name][chosen].tolist() for name in TERMS}
    columns["target"] = target[chosen].tolist()
    before, enabled = said[chosen].tolist(), terms["enabled"][chosen]
    for i, at in enumerate(chosen.tolist()):
        one, cpus = {name: values[i] for name, values in columns.items()}, wave.seats[at].cpus
        if terms["wanted"][at] < one["allow"]:
            one[CALLED_BACK] = int(terms["wanted"][at])
        reason = _reason(state, one, before[i]) if enabled[i] else "disabled"
        if reason == "refresh" and terms["others"][at]:
            reason = "other_cpus"
        if cpus:
            one["cpus"] = len(cpus)
        emit.command(
            state, wave, at, "suppress", reason, one, out, allow_milli=one["target"], cpus=cpus
        )
    rows = folded.rows[chosen]
    state.nodes["said_milli"][rows] = target[chosen]
    state.nodes["said_milli_ms"][rows] = folded.log_ms[chosen]
    state.nodes["said_free"][rows] = enabled == 0


def _reason(state: PartitionState, one: dict[str, int], said: int) -> str:
    if state.policy is None:
        return "no_policy"
    if said < 0:
        return "first"
    if one["target"] == said:
        return "refresh"
    if one["target"] < said:
        if CALLED_BACK in one:
            return SLO
        return "floor" if one["target"] == one["floor"] else "lower"
    return "raise"
