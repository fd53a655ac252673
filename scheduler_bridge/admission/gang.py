"""Gangs: pods that run together or not at all. What a pod says of its gang, and who may go. Pure.

`mutate` gates members, `gang_keeper` asks `decide` and lets them go. Names are those of
koordinator's coscheduling (`apis/extension/coscheduling.go`): a PodGroup label, else the older
label, else the annotation; the least number as annotation or label. The match policy is the peer's
default in effect: members that run count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from scheduler_bridge.admission.names import (
    GANG_ANNOTATION,
    GANG_GATE,
    GANG_LABELS,
    GANG_MIN_ANNOTATION,
    GANG_MIN_LABEL,
    GANG_WAIT_ANNOTATION,
)
from scheduler_bridge.admission.room import Room, Wants

MOST_MEMBERS = 10_000
UNITS_S = {"s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True, slots=True)
class Membership:
    """What a pod says: ``least`` members must be there; ``wait_s`` 0: as the rules say."""

    gang: str
    least: int
    wait_s: int = 0


@dataclass(frozen=True, slots=True)
class Member:
    """One pod of a gang as the mirror shows it. ``waiting``: only our gate holds it."""

    uid: str
    namespace: str
    name: str
    membership: Membership
    wants: Wants
    state: Literal["waiting", "held", "released", "bound"]
    seen_ms: int
    """When this keeper saw it first, by its own clock."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with the waiting members of one gang; ``why`` is for people."""

    gang: tuple[str, str]
    act: Literal["release", "reject", "wait"]
    members: tuple[Member, ...]
    why: str


@dataclass(slots=True)
class _Gang:
    waiting: list[Member] = field(default_factory=list)
    held: list[Member] = field(default_factory=list)
    going: list[Member] = field(default_factory=list)  # released or bound


def membership(labels: Mapping[str, str], annotations: Mapping[str, str]) -> Membership | None:
    """None: of no gang. Raises ValueError, saying what is wrong and allowed."""
    names = [labels[key] for key in GANG_LABELS if labels.get(key)]
    gang = names[0] if names else annotations.get(GANG_ANNOTATION, "")
    if not gang:
        return None
    said = annotations.get(GANG_MIN_ANNOTATION) or labels.get(GANG_MIN_LABEL)
    if said is None:
        raise ValueError(
            f"gang {gang} has no least number of members; say it in annotation "
            f"{GANG_MIN_ANNOTATION} or label {GANG_MIN_LABEL}"
        )
    if not said.isascii() or not said.isdigit() or not 1 <= int(said[:9]) <= MOST_MEMBERS:
        raise ValueError(
            f"gang {gang}: its least number is {said[:20]!r}; allowed: 1 to {MOST_MEMBERS}"
        )
    return Membership(gang, int(said), _wait_s(annotations.get(GANG_WAIT_ANNOTATION), gang))


def decide(members: Iterable[Member], room: Room, now_ms: int, wait_s: int) -> list[Decision]:
    """One answer a gang that has members waiting, oldest first; ``room`` shrinks as gangs go.

    A gang goes when as many as it needs are there, waiting or gone before, and each that waits has
    a place beside all others; it is rejected when it has waited for too long. The least number is
    the largest that a member says.
    """
    gangs: dict[tuple[str, str], _Gang] = {}
    for one in members:
        found = gangs.setdefault((one.namespace, one.membership.gang), _Gang())
        place = {"waiting": found.waiting, "held": found.held}.get(one.state, found.going)
        place.append(one)
    order = sorted(
        ((key, gang) for key, gang in gangs.items() if gang.waiting),
        key=lambda pair: (min(one.seen_ms for one in pair[1].waiting), pair[0]),
    )
    return [_decide_one(key, gang, room, now_ms, wait_s) for key, gang in order]


def let_all_go(members: Iterable[Member]) -> list[Decision]:
    """Everybody that waits, gang by gang."""
    gangs: dict[tuple[str, str], list[Member]] = {}
    for one in members:
        if one.state == "waiting":
            gangs.setdefault((one.namespace, one.membership.gang), []).append(one)
    return [
        Decision(key, "release", tuple(waiting), "gangs are switched off")
        for key, waiting in sorted(gangs.items())
    ]


def gated(gates: Sequence[str]) -> Literal["waiting", "held", "released"]:
    """Held by our gate alone, by ours and others', or not by ours."""
    if GANG_GATE not in gates:
        return "released"
    return "waiting" if len(gates) == 1 else "held"


def _decide_one(
    key: tuple[str, str], gang: _Gang, room: Room, now_ms: int, wait_s: int
) -> Decision:
    waiting = tuple(sorted(gang.waiting, key=lambda one: (one.namespace, one.name, one.uid)))
    everyone = [*waiting, *gang.held, *gang.going]
    least = max(one.membership.least for one in everyone)
    there = len(waiting) + len(gang.going)
    why = f"{there} of {least} members are there"
    if there >= least:
        lacking = room.take([one.wants for one in waiting])
        if not lacking:
            return Decision(key, "release", waiting, f"{why}, with room for all that wait")
        why = f"{why}, but there is no room for all: {lacking}"
    limit_s = max((one.membership.wait_s for one in waiting), default=0) or wait_s
    # Members that came late wait as long as the first: else a gang that trickles in waits for ever.
    waited_s = (now_ms - min(one.seen_ms for one in waiting)) // 1000
    if waited_s >= limit_s:
        return Decision(key, "reject", waiting, f"{why} after {limit_s} s")
    return Decision(key, "wait", waiting, why)


def _wait_s(said: str | None, gang: str) -> int:
    """A duration as Go writes it, whole units of s, m or h; 0 when nothing is said."""
    if said is None:
        return 0
    number, unit = said[:-1], said[-1:]
    if unit not in UNITS_S or not number.isascii() or not number.isdigit() or len(number) > 6:
        raise ValueError(
            f"gang {gang}: its waiting time is {said[:20]!r}; allowed: such as 30s, 10m or 2h"
        )
    return int(number) * UNITS_S[unit]
