"""Why these pods go, in this order, and not the next: the keys of an eviction's order in words.

Pure; `streams.explain.words` adds it to the sentence of an eviction. The keys are the terms that
`agents.eviction.why` leaves in the audit log: ``pod0_`` the first victim, ``next_`` who stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from agents.eviction.candidate import CHEAP, DEAR, UNKNOWN
from agents.eviction.plan import ALLOCATABLE, BEST_EFFORT, FEATURES, USAGE

TOLD = 3
"""Victims that are told with their keys; of more it is said how many."""
OFFERS = {
    BEST_EFFORT: "best effort",
    ALLOCATABLE: "offers itself, for what it asked",
    USAGE: "offers itself, for what it uses",
}
WORK = {
    CHEAP: "work that comes back by itself",
    UNKNOWN: "nothing known of its work",
    DEAR: "work that is lost for good",
}
Keys = Mapping[str, int]
Unit = Callable[[int], str]


def order(
    terms: Mapping[str, int], pods: Sequence[str], unit: Unit, *, by_share: bool,
    places: Mapping[int, str] = MappingProxyType({}),
) -> str:  # fmt: skip
    """The order of the victims ``pods`` (uids) as a clause; "" where the log says no keys.

    ``places``: uids by place in the node's set, where that is known. ``unit`` puts an amount of the
    resource into words; ``by_share``: best effort goes by use of what it asked for, as for CPU.
    """
    victims: list[tuple[str, Keys]] = []
    while keys := _keys(terms, f"pod{len(victims)}_"):
        place = len(victims)
        victims.append((pods[place] if place < len(pods) else _at(keys, places), keys))
    if not victims:
        return ""
    first = ", then ".join(_told(name, keys, unit) for name, keys in victims[:TOLD])
    more = len(victims) - TOLD + terms.get("untold", 0)
    said = f"; first {first}" + (f", then {more} more" if more > 0 else "")
    following = _keys(terms, "next_")
    if following:
        why = _before(victims[-1][1], following, unit, by_share=by_share)
        said += f"; next in line is {_at(following, places)}, which stays {why}"
    return said


def _keys(terms: Mapping[str, int], prefix: str) -> Keys:
    return {
        name.removeprefix(prefix): value for name, value in terms.items() if name.startswith(prefix)
    }


def _at(keys: Keys, places: Mapping[int, str]) -> str:
    if keys["place"] in places:
        return places[keys["place"]]
    return f"the pod at place {keys['place']} of its node's set"


def _told(name: str, keys: Keys, unit: Unit) -> str:
    used = "an unknown use" if keys["used"] < 0 else f"{unit(keys['used'])} in use"
    tries = f", asked {keys['tries']} times before" if keys["tries"] > 1 else ""
    return (
        f"{name} ({OFFERS[FEATURES[keys['feature']]]}, priority {keys['priority']}, "
        f"{WORK[keys['cost']]}, {used} of {unit(keys['request'])} asked for{tries})"
    )


def _before(one: Keys, other: Keys, unit: Unit, *, by_share: bool) -> str:
    """The first key, in the order that the victim was taken from, that sets the two apart."""
    feature = FEATURES[one["feature"]]
    best_effort = feature == BEST_EFFORT
    places = ("rung", "tries", "priority") if best_effort else _SAID
    for key in (*places, "cost", "lost_ms"):
        if one[key] < other[key]:
            return _REASONS[key].format(one[key], other[key])
    if best_effort and by_share:
        return "because it uses less of what it asked for"
    key = "request" if feature == ALLOCATABLE else "used"
    if one[key] == other[key]:
        return "by its name alone"
    if other[key] < 0:
        return "because nobody knows what it uses"
    verb = "asked for" if key == "request" else "uses"
    return f"because it {verb} less ({unit(other[key])})"


_SAID = ("eviction_priority", "priority", "sub_priority")
"""What a pod that offers itself says of its turn, in this order."""
_REASONS = {
    "rung": "because its priority is of a higher class",
    "tries": "because it was asked more often already ({1} times against {0})",
    "priority": "because its priority is higher ({1} against {0})",
    "eviction_priority": "because its eviction priority is higher ({1} against {0})",
    "sub_priority": "because its sub-priority is higher ({1} against {0})",
    "cost": "because its work is dearer",
    "lost_ms": "because more of its work would be done again",
}
