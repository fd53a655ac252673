"""What stands out, in plain sentences, the gravest first. Pure: from what the other parts found."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streams.explain.line import clock
from streams.report.grid import Floats
from streams.report.model import Change, Finding, Service, Suspect
from streams.report.overview import Overview
from streams.report.policies import Policies

NEAR_S = 120
"""A change so long before a service left its objective is told with it."""
MOST_NODES = 3
MOST_SUSPECTS = 3
MOST_CHANGES = 4
MOST_PROBLEMS = 5
LEAST_CORES = 0.5
"""A smaller difference in what was lent is not worth a sentence."""
NAMED = 3


@dataclass(frozen=True, slots=True)
class Facts:
    """All that sentences are made of."""

    overview: Overview
    policies: Policies
    suspects: list[Suspect]
    problems: tuple[str, ...]


def findings(facts: Facts) -> tuple[Finding, ...]:
    """Services, policies, what was lent, who went, who is suspected, what is damaged."""
    found: list[Finding] = []
    services = facts.overview.reports.services
    suffered = [service for service in services if service.beyond_s > 0]
    suffered.sort(key=lambda one: -one.beyond_s)
    found += [_beyond(service, facts.overview) for service in suffered]
    near, others = _changes(facts, services)
    for change in near:
        found.append(_policy(change))
        found += _lending(change, facts)
    found += [_policy(change) for change in others]
    found += _evictions(facts)
    found += [_suspect(one) for one in facts.suspects[:MOST_SUSPECTS] if one.correlation > 0]
    found += _damage(facts.problems)
    if not any(one.grave for one in found):
        calm = "No service that measures itself left its objective, and nobody was evicted."
        none = "No service measures itself in this recording, so none can be judged."
        found.insert(0, Finding("slis", calm if services else none))
    return tuple(found)


def _beyond(service: Service, overview: Overview) -> Finding:
    """One service: for how long, where, how bad, when it came back."""
    nodes, whole = service.nodes_beyond, len(overview.nodes.names)
    back = overview.to_ms - service.to_ms
    ended = "" if back < 2 * overview.grid.step_ms else f", the last time at {time(service.to_ms)}"
    judged = []
    if service.p99_ms > 0:
        judged.append(f"p99 at most {service.p99_ms:g} ms")
    if service.errors_permille < 1000:
        judged.append(f"errors at most {service.errors_permille} permille")
    return Finding(
        "slis",
        f"{service.workload} left its objective ({', '.join(judged)}; {service.yardstick}) at "
        f"{time(service.from_ms)} on {_some(nodes, whole)}{ended}: {service.beyond_s:.0f} s beyond "
        f"it in all, its worst p99 was {service.worst_p99_ms:.1f} ms.",
        node=_worst(nodes, overview), from_ms=service.from_ms, to_ms=service.to_ms, grave=True,
    )  # fmt: skip


def _worst(nodes: tuple[str, ...], overview: Overview) -> str:
    return next((name for name in overview.ranked() if name in nodes), "")


def _changes(facts: Facts, services: tuple[Service, ...]) -> tuple[list[Change], list[Change]]:
    """Changes of a policy that are worth a sentence: those shortly before trouble, and others."""
    inside = [change for change in facts.policies.changes if change.changes]
    troubles = [one.from_ms for one in services if one.beyond_s > 0]
    near = [
        change
        for change in inside
        if any(0 <= at - change.log_ms <= NEAR_S * 1000 for at in troubles)
    ]
    return near[:MOST_CHANGES], [change for change in inside if change not in near][:MOST_CHANGES]


def _policy(change: Change) -> Finding:
    by = f" by {change.author}" if change.author else ""
    note = f" ({change.note})" if change.note else ""
    return Finding(
        "policy",
        f"Policy {change.name} became version {change.version} at {time(change.log_ms)}{by}{note}: "
        f"{change.what}.",
        from_ms=change.log_ms,
    )


def _lending(change: Change, facts: Facts) -> list[Finding]:
    """What best-effort work could use and used after a change, beside before it."""
    overview = facts.overview
    until = facts.policies.until(change.log_ms) or overview.to_ms
    before = [c.log_ms for c in facts.policies.changes if c.log_ms < change.log_ms]
    at, end, begin = (
        int(overview.grid.at(np.array([ms]))[0])
        for ms in (change.log_ms, until, max(before, default=overview.from_ms))
    )
    if end - at < 2 or at - begin < 2:
        return []
    means = {
        name: (_mean(curves[:, begin:at]), _mean(curves[:, at + 1 : end]))
        for name, curves in (
            ("allowed", overview.allowed), ("used", overview.best_effort),
            ("offered", overview.offered),
        )
    }  # fmt: skip
    moved = means["allowed"][1] - means["allowed"][0]
    order = np.argsort(-np.abs(np.nan_to_num(moved)), kind="stable")[:MOST_NODES]
    found = []
    for row in order.tolist():
        (was, now), (used_was, used), (lent_was, lent) = (
            (float(a[row]), float(b[row])) for a, b in means.values()
        )
        if np.isnan(moved[row]) or abs(moved[row]) < LEAST_CORES:
            continue
        offered = (
            ""
            if np.isnan(lent_was + lent)
            else f", was offered {lent:.1f} instead of {lent_was:.1f}"
        )
        name = overview.nodes.names[row]
        found.append(
            Finding(
                "lending",
                f"From {time(change.log_ms)} best-effort work on {name} might use {now:.1f} cores "
                f"instead of {was:.1f}{offered}, and used {used:.1f} instead of {used_was:.1f} "
                f"(means up to {time(until)}).",
                node=name, from_ms=change.log_ms, to_ms=until,
            )
        )  # fmt: skip
    return found


def _evictions(facts: Facts) -> list[Finding]:
    counts = facts.overview.evictions
    if not counts:
        return []
    total = sum(counts.values())
    each = ", ".join(f"{number} on {node}" for node, number in counts.most_common(NAMED))
    pods = "1 pod was" if total == 1 else f"{total} pods were"
    more = "" if len(counts) <= NAMED else f" and {len(counts) - NAMED} nodes more"
    return [
        Finding(
            "eviction",
            f"{pods} evicted: {each}{more}.",
            node=counts.most_common(1)[0][0],
            grave=True,
        )
    ]


def _damage(problems: tuple[str, ...]) -> list[Finding]:
    said = [f"Part of the recording cannot be used: {each}." for each in problems[:MOST_PROBLEMS]]
    more = len(problems) - MOST_PROBLEMS
    if more > 0:
        said.append(f"So it is with {more} parts more.")
    return [Finding("damage", each) for each in said]


def _suspect(one: Suspect) -> Finding:
    return Finding(
        "suspect",
        f"Probably at fault on {one.node}: {one.pod} ({one.workload}), which used "
        f"{one.beyond_cores:.1f} cores while a service suffered, {one.calm_cores:.1f} otherwise, "
        f"{one.share_percent:.0f} % of all best-effort use then; its use went with the waiting "
        f"of online pods (r = {one.correlation:.2f}).",
        node=one.node,
    )


def time(log_ms: int) -> str:
    """The time of a day in UTC; a report is of hours."""
    return clock(log_ms).split(" ")[1]


def _some(nodes: tuple[str, ...], whole: int) -> str:
    named = ", ".join(nodes[:NAMED]) + (", ..." if len(nodes) > NAMED else "")
    return f"{len(nodes)} of {whole} nodes ({named})"


def _mean(curves: Floats) -> Floats:
    known = (~np.isnan(curves)).sum(axis=1)
    found: Floats = np.where(known > 0, np.nansum(curves, axis=1) / np.maximum(known, 1), np.nan)
    return found
