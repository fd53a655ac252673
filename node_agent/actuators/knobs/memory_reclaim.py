"""Pressing a best-effort pod's memory down to a figure, a step a turn; never an online pod's.

memory.reclaim (Linux 5.19, v2): the kernel takes page cache and what can be swapped, as far as it
finds any, while the pod runs on. Nothing is set, so there is nothing to give back. A step is small:
the write lasts until it is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from node_agent.actuators.knob import Ask, Found, Knob, Machine, Raw, Values

CURRENT, RECLAIM = "memory.current", "memory.reclaim"
STEP_BYTES = 16 << 20


class MemoryReclaim(Knob):
    """Down to ``memory_reclaim_bytes``."""

    name = "memory_reclaim"
    turns = frozenset({"memory_reclaim_bytes"})
    surface = "memory"
    exact = False

    def takes(self, ask: Ask) -> frozenset[str]:
        return frozenset(name for name, value in ask.knobs.items() if value >= 0)

    def files(self, version: int) -> tuple[str, ...]:
        return (CURRENT,) if version == 2 else ()

    def values(self, version: int, raw: Raw, machine: Machine) -> Values:
        return {file: str(int(text)) for file, text in raw.items()}

    def wanted(
        self, version: int, ask: Ask, members: Sequence[Found], originals: Mapping[str, Values]
    ) -> Mapping[str, Values]:
        if ask.online:
            return {}
        aim = ask.knobs["memory_reclaim_bytes"]
        return {
            found.place: {CURRENT: str(min(int(found.values.get(CURRENT, "0")), max(aim, 0)))}
            for found in members
            if aim >= 0
        }

    def wider(self, before: Values, after: Values) -> bool:
        return False

    def writes(self, version: int, before: Values, after: Values) -> list[tuple[str, str]]:
        step = min(int(before[CURRENT]) - int(after[CURRENT]), STEP_BYTES)
        return [(RECLAIM, str(step))] if step > 0 else []
