"""How far co-location has gone on a node: the stage of the rollout, and what it lets others do.

`schemas.policy.layers` applies it last, so that no layer below can switch on what a stage forbids.
Stages are the operators' handbook's: observe, protect, pilot, expand.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from msgspec import Meta, structs

from schemas.policy.units import Part, Percent, Permille

Stage = Literal["observe", "protect", "pilot", "expand"]
STAGES: dict[str, str] = {
    "observe": "measured and reported only, no command, nothing lent",
    "protect": "suppression, eviction and isolation as the policy says, nothing lent",
    "pilot": "CPU is lent within the pilot's bounds, no memory",
    "expand": "all that the policy says",
}
"""What is done in each stage, in words for people."""
Workload = Annotated[str, Meta(min_length=1, max_length=253)]
MEASURING = ("interference", "prediction", "load_aware", "low_node_load", "elastic_quota")
"""Sections that command nothing and lend nothing: every stage leaves them as they are."""
LENDING = ("capacity", "mid")
"""Sections that lend: off until the pilot."""


class PilotExit(Part, frozen=True):
    """What the account of a pilot has to show before anything is expanded."""

    observed_days: Annotated[int, Meta(ge=0, le=365)] = 14  # at least
    evictions_per_1000_node_days: Annotated[int, Meta(ge=0, le=10_000_000)] = 1000  # at most
    suppressed_permille: Permille = 200  # at most, of the time that best-effort work ran
    online_violations: Annotated[int, Meta(ge=0, le=1_000_000)] = 0  # objectives missed, at most


class Pilot(Part, frozen=True):
    """The pilot's own terms."""

    exit: PilotExit = PilotExit()


class Rollout(Part, frozen=True):
    """The stage of a node, what it may lend, and how a pilot ends."""

    stage: Stage = "observe"
    cpu_cap_percent: Percent = 100  # of the node's capacity: never more is lent
    workloads: Annotated[tuple[Workload, ...], Meta(max_length=256)] = ()  # none named: any
    pilot: Pilot = Pilot()


def staged(stage: Stage, sections: dict[str, Any], *, control: bool) -> dict[str, Any]:
    """The sections that ``stage`` switches off or bounds; ``control``: a node left out.

    The pilot lends CPU only.
    """
    if control or stage == "observe":
        names = [name for name in sections if name not in MEASURING]
    elif stage == "protect":
        names = [name for name in LENDING if name in sections]
    else:
        return {name: _capped(sections, name, stage) for name in LENDING}
    return {name: _off(sections[name]) for name in names if isinstance(sections[name], Part)}


def _capped(sections: dict[str, Any], name: str, stage: Stage) -> Any:
    """A section that lends: no more CPU than the rollout's cap, and in the pilot no memory."""
    section, cap_percent = sections[name], sections["rollout"].cpu_cap_percent
    return structs.replace(
        section,
        cpu_cap_percent=min(section.cpu_cap_percent, cap_percent),
        memory_cap_percent=0 if stage == "pilot" else section.memory_cap_percent,
    )


def _off(part: Any) -> Any:
    """A section with every switch of it, and of the parts in it, off."""
    changes: dict[str, Any] = {}
    for field in structs.fields(part):
        value = getattr(part, field.name)
        if field.name == "enabled":
            changes["enabled"] = False
        elif isinstance(value, Part):
            changes[field.name] = _off(value)
        elif field.name == "policy" and "none" in get_args(field.type):
            changes["policy"] = "none"
    return structs.replace(part, **changes)
