"""Memory limits of the daemons together; never wider than what their group has already.

A limit below what they hold is not set (EBUSY) and tried again: it would kill one of them. Law:
`agents.isolation.system_daemons`.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping, Sequence

from node_agent.actuators.knob import Ask, Found, Knob, Machine, Raw, Values
from node_agent.actuators.knobs.extended_memory import CURRENT, HELD, STAT, V1, V2, held
from node_agent.actuators.number import MAX, MOST_BYTES, PAGE, canonical
from node_agent.actuators.roster import Roster
from schemas.records import IsolationSettings

HIGH = "memory.high"
FILES = {1: {"memory_max_bytes": V1}, 2: {"memory_high_bytes": HIGH, "memory_max_bytes": V2}}
"""Version -> setting -> its file."""
DAEMONS = "daemons_"


class DaemonsMemory(Knob):
    """One unit: the group that the inventory file names."""

    name = "daemons_memory"
    turns = frozenset(DAEMONS + setting for setting in FILES[2])
    surface = "daemons_memory"

    def asks(self, settings: IsolationSettings, roster: Roster) -> Iterable[Ask]:
        said = {
            DAEMONS + setting: settings.daemons[setting]
            for setting in FILES[2]
            if settings.daemons.get(setting, 0) >= PAGE
        }
        if roster.daemons is not None and said:
            yield Ask(roster.daemons, said, alone=True)

    def files(self, version: int) -> tuple[str, ...]:
        return (V1,) if version == 1 else (HIGH, V2, CURRENT, STAT)

    def values(self, version: int, raw: Raw, machine: Machine) -> Values:
        found = {file: canonical(text) for file, text in raw.items() if file in (V1, V2, HIGH)}
        if CURRENT in raw and STAT in raw:
            found[HELD] = str(held(int(raw[CURRENT]), raw[STAT]))
        return found

    def lacks(self, ask: Ask, found: Values) -> frozenset[str]:
        there = {
            DAEMONS + setting
            for files in FILES.values()
            for setting, file in files.items()
            if file in found
        }
        return frozenset(ask.knobs.keys() - there)

    def wanted(
        self, version: int, ask: Ask, members: Sequence[Found], originals: Mapping[str, Values]
    ) -> Mapping[str, Values]:
        """Raises OSError (EBUSY) for a group that holds more than its limit."""
        (found,) = members
        own, wanted = originals[found.place], {}
        for setting, file in FILES[version].items():
            asked = ask.knobs.get(DAEMONS + setting)
            if asked is None or file not in own:
                continue
            limit = min(asked, MOST_BYTES) // PAGE * PAGE
            if own[file] == MAX or limit < int(own[file]):
                wanted[file] = str(limit)
                now = found.values[file]
                narrower = now == MAX or limit < int(now)
                if file == V2 and narrower and int(found.values.get(HELD, "0")) > limit:
                    raise OSError(errno.EBUSY, f"{found.place} holds more than {limit} bytes")
        return {found.place: wanted}

    def writes(self, version: int, before: Values, after: Values) -> list[tuple[str, str]]:
        said = [(f, t) for f, t in after.items() if f != HELD and before.get(f) != t]
        return [(file, "-1" if file == V1 and text == MAX else text) for file, text in said]

    def agrees(self, now: Values, then: Values) -> bool:
        return super().agrees(now, {file: text for file, text in then.items() if file != HELD})
