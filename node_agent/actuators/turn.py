"""Carrying plans out: write, read back, put back. The one place where a knob's values are written.

Called by `node_agent.keeper`, which has put every original in the journal before. A unit is turned
whole or not at all: where the kernel refuses one of its places, those written before get back what
they said, and the other units go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from node_agent.actuators.failure import REFUSALS, reason_of
from node_agent.actuators.knob import Found, Knob, Machine, Step, Surface, Values

Originals = Mapping[str, Values]
NOT_TAKEN = "not_taken"
"""Written without an error, and read back as something else."""


@dataclass(frozen=True, slots=True)
class Turned:
    """``now``: what the places touched say after it; ``failed``: unit -> reason code."""

    now: dict[str, Values] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def observe(knob: Knob, surface: Surface, machine: Machine, places: Iterable[str]) -> list[Found]:
    """Those of the places that are there. Raises OSError, ValueError for what says nonsense."""
    found = []
    files = knob.files(surface.version)
    for place in places:
        seen = surface.look(place, files)
        if seen is not None:
            identity, raw = seen
            found.append(Found(place, identity, knob.values(surface.version, raw, machine)))
    return found


def apply(
    knob: Knob, surface: Surface, machine: Machine, steps: Sequence[Step], originals: Originals
) -> Turned:
    """Steps in the order given; what vanished meanwhile is skipped."""
    turned = Turned()
    done: dict[str, list[Step]] = {}
    for step in steps:
        if step.unit in turned.failed:
            continue
        try:
            _write(knob, surface, step.before, step, originals)
            now = _now(knob, surface, machine, step.place)
            taken = now is None or not knob.exact or knob.agrees(now, step.after)
            reason = "" if taken else NOT_TAKEN
        except REFUSALS as error:
            now, reason = None, reason_of(error).removeprefix("os:")
            if _gone(surface, step.place) or (reason == "EAGAIN" and not knob.exact):
                continue
        if now is not None:
            turned.now[step.place] = now
        mine = done.setdefault(step.unit, [])
        mine.append(step)
        if reason:
            turned.failed[step.unit] = f"{knob.name}:{reason}"
            for back in reversed(mine):
                left = _put_back(knob, surface, machine, back, originals)
                if left is not None:
                    turned.now[back.place] = left
    return turned


def _put_back(
    knob: Knob, surface: Surface, machine: Machine, step: Step, originals: Originals
) -> Values | None:
    """As it was before the step; a place that refuses even that keeps what it has."""
    back = Step(step.unit, step.place, step.after, step.before)
    try:
        now = _now(knob, surface, machine, step.place)
        if now is not None and not knob.agrees(now, step.before):
            _write(knob, surface, now, back, originals)
        return _now(knob, surface, machine, step.place)
    except REFUSALS:
        return None


def _write(knob: Knob, surface: Surface, now: Values, step: Step, originals: Originals) -> None:
    original = originals.get(step.place, {})
    for file, text in knob.writes(surface.version, now, step.after):
        surface.write(step.place, file, text, original.get(file))


def _now(knob: Knob, surface: Surface, machine: Machine, place: str) -> Values | None:
    seen = surface.look(place, knob.files(surface.version))
    return None if seen is None else knob.values(surface.version, seen[1], machine)


def _gone(surface: Surface, place: str) -> bool:
    try:
        return surface.look(place, ()) is None
    except REFUSALS:
        return False
