"""Stopping a best-effort pod where it stands, without a kill; never an online pod.

cgroup.freeze where a v2 hierarchy is mounted, which a kill passes through; else the v1 freezer,
whose frozen tasks do not die: so `obey` lets a pod go before it kills it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from node_agent.actuators.knob import Ask, Found, Knob, Machine, Raw, Values

V1_STATE, V1_SELF, V2 = "freezer.state", "freezer.self_freezing", "cgroup.freeze"


class Freeze(Knob):
    """1 frozen, 0 not; what a parent's freezing does to it is not its own."""

    name = "freeze"
    turns = frozenset({"freeze"})
    surface = "freeze"

    def takes(self, ask: Ask) -> frozenset[str]:
        return frozenset(name for name, value in ask.knobs.items() if value)

    def files(self, version: int) -> tuple[str, ...]:
        return (V1_SELF,) if version == 1 else (V2,)

    def values(self, version: int, raw: Raw, machine: Machine) -> Values:
        return {file: str(int(text)) for file, text in raw.items()}

    def wanted(
        self, version: int, ask: Ask, members: Sequence[Found], originals: Mapping[str, Values]
    ) -> Mapping[str, Values]:
        if ask.online:
            return {}
        (file,) = self.files(version)
        return {found.place: {file: str(int(ask.knobs["freeze"] > 0))} for found in members}

    def wider(self, before: Values, after: Values) -> bool:
        return "0" in after.values()

    def writes(self, version: int, before: Values, after: Values) -> list[tuple[str, str]]:
        said = [(key, text) for key, text in after.items() if before.get(key) != text]
        if version == 2:
            return said
        return [(V1_STATE, "FROZEN" if text == "1" else "THAWED") for _, text in said]
