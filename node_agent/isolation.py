"""Isolation settings of a command, and which of their knobs this node cannot turn.

`node_agent.lease` asks before anything is done: a node without an actuator for a knob says so, by
the knob's name, and sets nothing.
"""

from __future__ import annotations

from schemas.records import IsolationSettings

ACTUATED: frozenset[str] = frozenset()
"""Knobs that an actuator of this node turns; names are those of the settings."""


def knobs(settings: IsolationSettings) -> frozenset[str]:
    """Every knob that the settings name."""
    groups = (*settings.classes.values(), *settings.tiers.values())
    named = {knob for group in groups for knob in group} | set(settings.pod_knobs)
    named |= {f"daemons_{knob}" for knob in settings.daemons}
    if settings.schemata:
        named.add("schemata")
    if settings.bandwidths:
        named.add("bandwidths")
    return frozenset(named)


def unable(settings: IsolationSettings | None) -> str:
    """The reason code of a refusal, which names the knobs; "" when nothing stands in the way."""
    if settings is None:
        return "no_settings"
    missing = sorted(knobs(settings) - ACTUATED)
    return f"no_actuator:{','.join(missing)}" if missing else ""
