"""What a change of policy expands: who reaches the last stage, or lends to more workloads. Pure.

`streams.policy_gate` asks. Nodes are told apart by their labels alone, whatever nodes there are:
a selector that matches more than before expands, and so does one that no longer holds others back.
A node that is expanded carries the labels of the entry that decides its stage after the change, and
of the one that decided it before; so it is enough to look at every two such entries together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from schemas.policy import Policy, Rollout, carries
from schemas.policy.partial import changes_of, with_changes
from streams.stages import CLUSTER

EXPANDED = "expand"
Labels = dict[str, str]


@dataclass(frozen=True, slots=True)
class Holds:
    """The rollout of nodes with some labels, and who said each key: a name, and what it matches."""

    rollout: Rollout
    said_by: dict[str, tuple[str, Labels]]


@dataclass(frozen=True, slots=True)
class Expansion:
    """What would be expanded, and the rollout that holds there before."""

    what: str
    before: Rollout


def expanded(before: Policy, after: Policy) -> list[Expansion]:
    """What ``after`` expands that ``before`` did not, by name."""
    found: dict[str, Expansion] = {}
    for labels in _kinds(before, after):
        old, new = _holds(before, labels), _holds(after, labels)
        key = _reason(old.rollout, new.rollout)
        if key is None:
            continue
        name, match = new.said_by[key]
        what = name if key == "stage" else f"{name} (more workloads)"
        beyond = {k: value for k, value in labels.items() if k not in match}
        if beyond and what in found:
            continue
        where = ", ".join(f"{k}={value}" for k, value in sorted(beyond.items()))
        what = f"{what} on nodes with {where}" if beyond else what
        found.setdefault(what, Expansion(what, old.rollout))
    return [found[what] for what in sorted(found)]


def _reason(old: Rollout, new: Rollout) -> str | None:
    """The key that expands; None: nothing does."""
    if new.stage != EXPANDED:
        return None
    if old.stage != EXPANDED:
        return "stage"
    named, more = set(old.workloads), set(new.workloads)
    return "workloads" if named and (not more or more - named) else None


def _holds(policy: Policy, labels: Labels) -> Holds:
    """As `schemas.policy.layers` lays it, the control group last; a node cannot say a rollout."""
    rollout = policy.rollout
    said_by: dict[str, tuple[str, Labels]] = dict.fromkeys(("stage", "workloads"), (CLUSTER, {}))
    for name, match, said in _entries(policy):
        if carries(labels, match):
            rollout = with_changes(rollout, said)
            said_by |= dict.fromkeys(said_by.keys() & said.keys(), (name, match))
    if carries(labels, policy.control_group):
        rollout = with_changes(rollout, {"stage": "observe"})
    return Holds(rollout, said_by)


def _entries(policy: Policy) -> list[tuple[str, Labels, dict[str, object]]]:
    """(name, match, what it says of the rollout) of each entry that says something of it."""
    said = [(entry, changes_of(entry, ("rollout",)).get("rollout")) for entry in policy.nodes]
    return [(f"nodes {entry.name}", entry.match, each) for entry, each in said if each]


def _kinds(before: Policy, after: Policy) -> Iterator[Labels]:
    """Labels to look at, the fewest first; labels that no node can carry together are left out."""
    then = [{}, *(match for _, match, _ in _entries(before)), before.control_group]
    now = [{}, *(match for _, match, _ in _entries(after))]
    pairs = [(one, other) for one in now for other in then]
    for one, other in sorted(pairs, key=lambda pair: len(pair[0] | pair[1])):
        if all(other.get(key, value) == value for key, value in one.items()):
            yield one | other
