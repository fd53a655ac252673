"""Memory limits of best-effort pods and containers as they asked for them in extended resources.

Never wider than what a group has already. On v1 the kernel refuses a limit below what is in use and
cannot be reclaimed; on v2 it would kill for it, so here that is refused before, and tried again.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping, Sequence

from node_agent.actuators.extended import LIMIT, asks
from node_agent.actuators.knob import Ask, Found, Knob, Machine, Raw, Values
from node_agent.actuators.number import MAX, MOST_BYTES, PAGE, canonical
from node_agent.actuators.roster import Roster
from schemas.records import IsolationSettings

V1, V2 = "memory.limit_in_bytes", "memory.max"
CURRENT, STAT = "memory.current", "memory.stat"
HELD = "held"
"""Among the values: what of the memory in use is no page cache of files."""


class ExtendedMemory(Knob):
    """Every group is a unit of its own."""

    name = "extended_memory"
    turns = frozenset({"extended_memory"})
    surface = "memory"

    def asks(self, settings: IsolationSettings, roster: Roster) -> Iterable[Ask]:
        for ask in asks(settings, roster, self.name, "memory_bytes"):
            if LIMIT in ask.figures or ask.online:
                yield ask

    def takes(self, ask: Ask) -> frozenset[str]:
        return self.turns

    def files(self, version: int) -> tuple[str, ...]:
        return (V1,) if version == 1 else (V2, CURRENT, STAT)

    def values(self, version: int, raw: Raw, machine: Machine) -> Values:
        found = {file: canonical(text) for file, text in raw.items() if file in (V1, V2)}
        if CURRENT in raw and STAT in raw:
            found[HELD] = str(held(int(raw[CURRENT]), raw[STAT]))
        return found

    def lacks(self, ask: Ask, found: Values) -> frozenset[str]:
        return frozenset() if found.keys() & {V1, V2} else self.turns

    def wanted(
        self, version: int, ask: Ask, members: Sequence[Found], originals: Mapping[str, Values]
    ) -> Mapping[str, Values]:
        """Raises OSError (EBUSY) for a v2 group that holds more than its limit."""
        if ask.online:
            return {}
        (found,) = members
        file = V1 if version == 1 else V2
        own = originals[found.place].get(file)
        limit = min(ask.figures[LIMIT], MOST_BYTES) // PAGE * PAGE
        if own is None or limit < PAGE or (own != MAX and int(own) <= limit):
            return {}
        narrower = found.values[file] == MAX or int(found.values[file]) > limit
        if narrower and int(found.values.get(HELD, "0")) > limit:
            raise OSError(errno.EBUSY, f"{found.place}: holds more than its limit of {limit} bytes")
        return {found.place: {file: str(limit)}}

    def wider(self, before: Values, after: Values) -> bool:
        return any(_bytes(after[f]) > _bytes(before[f]) for f in (V1, V2) if f in after)

    def writes(self, version: int, before: Values, after: Values) -> list[tuple[str, str]]:
        file = V1 if version == 1 else V2
        if before.get(file) == after.get(file):
            return []
        return [(file, "-1" if version == 1 and after[file] == MAX else after[file])]

    def agrees(self, now: Values, then: Values) -> bool:
        return super().agrees(now, {file: text for file, text in then.items() if file != HELD})


def held(current: int, stat: str) -> int:
    """Bytes in use without the page cache of files, which can be reclaimed."""
    lines = (line.split() for line in stat.splitlines())
    cache = sum(int(words[1]) for words in lines if words[0] in ("active_file", "inactive_file"))
    return max(current - cache, 0)


def _bytes(text: str) -> float:
    return float("inf") if text == MAX else int(text)
