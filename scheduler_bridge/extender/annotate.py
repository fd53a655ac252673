"""Scores as node annotations, for clusters whose scheduler takes no extenders. Off by default.

`due` chooses what is worth a write; `service` writes it at a pace. The score, 0 to 100, is that
of a pod that asks for nothing (policy says what such a pod uses); ``full``: it would be refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agents.placement import load_filter
from agents.table import ABSENT
from scheduler_bridge.extender import judge
from scheduler_bridge.extender.fleet import Fleet
from scheduler_bridge.extender.pods import PodRow
from scheduler_bridge.extender.settings import Annotating

FULL = "full"
MODEL = PodRow(
    uid="", namespace="", name="", node="", workload="", priority_class="batch", daemonset=False,
    over=False, asked=(0, 0), allowed=(0, 0), factors=(ABSENT, ABSENT), borrows=(0, 0, 0, 0),
    scheduled_ms=ABSENT, initialized_ms=ABSENT,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Note:
    """What should stand on a node."""

    node: str
    text: str


def texts(fleet: Fleet, names: list[str], now_ms: int) -> list[str]:
    """The text of each node [n]; the fleet has been refreshed."""
    rows = fleet.rows_of(names)
    refused = judge.by_load(fleet, rows, MODEL, now_ms) >= load_filter.STALE
    scores = judge.scored(fleet, rows, MODEL, now_ms)
    return [FULL if no else str(score) for no, score in zip(refused, scores.tolist(), strict=True)]


def due(
    wanted: Mapping[str, str], shown: Mapping[str, str], written_ms: Mapping[str, int], now_ms: int,
    rules: Annotating,
) -> list[Note]:  # fmt: skip
    """What to write now, worst first: nodes that got worse, deepest fall first, then the others.

    ``shown`` is what stands on the nodes ("" nothing), ``written_ms`` when we last wrote. A node
    that became full is written whenever that is, every other change once in ``every_ms``.
    """
    found = []
    for node, text in wanted.items():
        old = shown.get(node, "")
        urgent = text == FULL != old
        waits = now_ms - written_ms.get(node, -rules.every_ms) < rules.every_ms
        if text == old or (waits and not urgent):
            continue
        rise = _points(text) - _points(old)
        # What nobody wrote or nobody can read is no fall.
        strange = _points(old) < 0 and old != FULL
        if urgent or old == FULL or strange or abs(rise) >= rules.change:
            found.append((0 if strange else rise, node, Note(node, text)))
    return [note for _, _, note in sorted(found, key=lambda one: one[:2])]


def _points(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 3 else -1
