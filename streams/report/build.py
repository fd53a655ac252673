"""A recording to a `model.Report`: one coarse pass over all, then a close look at some nodes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from streams.recording import Recording
from streams.recording.manifest import BadRecording
from streams.report import suspects
from streams.report.beside import Told
from streams.report.detail import Timelines
from streams.report.findings import Facts, findings
from streams.report.marks import LANES, Marks
from streams.report.model import About, Pod, Report, Suspect
from streams.report.overview import Overview
from streams.report.pods import Use, lines, uses
from streams.report.policies import Policies
from streams.report.services import reports

NODES = 16
"""Nodes that are shown closely unless told otherwise."""
MOST_SUSPECTS = 40


@dataclass(frozen=True, slots=True)
class Wish:
    """``nodes``: to be shown closely, first; up to ``most`` the most concerned beside them."""

    source: str
    nodes: Sequence[str] = ()
    most: int = NODES


def build(
    recording: Recording, wish: Wish, what_if: Told | None = None,
    step: Callable[[str], None] = lambda _doing: None,
) -> Report:  # fmt: skip
    """All that is said. ``what_if``: its figures, and what it finds; ``step``: hears what is done.

    Raises BadRecording for a node that is not in it, and for a recording without samples.
    """
    step("all nodes")
    policies = Policies(recording)
    overview = Overview(recording, reports(recording, policies.objectives()))
    chosen = choose(overview, wish)
    step(f"{len(chosen)} nodes closely")
    timelines = Timelines(recording, overview, chosen)
    pods: list[Pod] = []
    found: list[Suspect] = []
    close: dict[str, Use] = {}
    for use in uses(recording, chosen, timelines.grid):
        beyond = timelines.beyond(use.node)
        gone = {uid for node, uid in overview.evicted if node == use.node}
        pods += lines(use, beyond, gone)
        found += suspects.of_node(use, beyond)
        close[use.node] = use
    found.sort(key=lambda one: (-one.score, one.node, one.pod))
    labels = {
        uid: fact.label
        for use in close.values()
        for uid, fact in zip(use.uids, use.facts, strict=True)
        if fact.label
    }
    step("decisions")
    marks = Marks(recording, chosen, policies.version, labels)
    about = _about(recording, wish, overview)
    told = findings(Facts(overview, policies, found, about.problems))
    figures, more = what_if if what_if is not None else (None, [])
    return Report(
        about=about,
        findings=(*more, *told),
        policies=policies.changes,
        services=overview.reports.services,
        fleet=overview.fleet(),
        nodes=overview.lines(chosen),
        details={node: timelines.detail(node, close.get(node), marks) for node in chosen},
        pods=tuple(pods),
        suspects=tuple(found[:MOST_SUSPECTS]),
        rules=LANES,
        what_if=figures,
    )


def choose(overview: Overview, wish: Wish) -> list[str]:
    """The nodes that are shown closely. Raises BadRecording for one that is not there."""
    known = set(overview.nodes.names)
    missing = [name for name in wish.nodes if name not in known]
    if missing:
        raise BadRecording(f"node {missing[0]!r:.80} is not in it: it has {_some(sorted(known))}")
    asked = list(dict.fromkeys(wish.nodes))
    others = [name for name in overview.ranked() if name not in wish.nodes]
    return asked + others[: max(wish.most - len(asked), 0)]


def _some(names: Collection[str]) -> str:
    shown = list(names)[:5]
    return ", ".join(shown) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _about(recording: Recording, wish: Wish, overview: Overview) -> About:
    manifest = recording.manifest
    problems = [f"{each.name} {each.why}" for each in recording.problems]
    problems += [
        f"{gap.topic}/{gap.partition} {gap.first} to {gap.last} were not recorded: {gap.why}"
        for gap in manifest.gaps
    ]
    return About(
        source=wish.source, software=manifest.software, from_ms=overview.from_ms,
        to_ms=overview.to_ms, nodes=len(overview.nodes.names), partitions=manifest.partitions,
        law_versions=manifest.law_versions, pseudonymised=manifest.pseudonymised,
        problems=tuple(problems),
    )  # fmt: skip
