"""What a command of decider ``isolate`` asks for; part of `schemas.records`, read through it."""

from __future__ import annotations

from dataclasses import dataclass, field

from schemas.facts import Int64


@dataclass(frozen=True, slots=True)
class IsolationSettings:
    """All that is set on a node, knob by knob, with units in the names; -1 is no limit.

    Absolute: a knob, class, group or pod that is not named is nobody's order, and what was found
    there is given back. ``classes``: QoS class -> knob of each of its pods. ``pod_knobs``: columns
    as long as ``pods`` (uid), null: not set there. ``tiers``: Kubernetes class -> knob of the
    group above its pods. ``daemons``: of the group of the daemons. ``schemata``: resctrl group ->
    its lines. ``bandwidths``: network class -> its share,
    ``ALL``: of all together.
    """

    classes: dict[str, dict[str, Int64]] = field(default_factory=dict)
    pods: tuple[str, ...] = ()
    pod_knobs: dict[str, list[Int64 | None]] = field(default_factory=dict)
    tiers: dict[str, dict[str, Int64]] = field(default_factory=dict)
    daemons: dict[str, Int64] = field(default_factory=dict)
    schemata: dict[str, str] = field(default_factory=dict)
    bandwidths: dict[str, dict[str, Int64]] = field(default_factory=dict)
