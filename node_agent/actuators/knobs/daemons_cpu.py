"""CPU limit of the daemons together; never wider than what their group has already.

Law: `agents.isolation.system_daemons`, whose floor keeps daemons alive.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from agents.isolation.extended import quota_us
from node_agent.actuators.knob import Ask, Found, Knob, Machine, Raw, Values
from node_agent.actuators.knobs.extended_cpu import MAX, PERIOD, QUOTA, over
from node_agent.actuators.number import canonical
from node_agent.actuators.roster import Roster
from schemas.records import IsolationSettings

CPU = "daemons_cpu_milli"


class DaemonsCpu(Knob):
    """One unit: the group that the inventory file names."""

    name = "daemons_cpu"
    turns = frozenset({CPU})
    surface = "daemons_cpu"

    def asks(self, settings: IsolationSettings, roster: Roster) -> Iterable[Ask]:
        milli = settings.daemons.get("cpu_milli", 0)
        if roster.daemons is not None and milli > 0:
            yield Ask(roster.daemons, {CPU: milli}, alone=True)

    def files(self, version: int) -> tuple[str, ...]:
        return (QUOTA, PERIOD) if version == 1 else (MAX,)

    def values(self, version: int, raw: Raw, machine: Machine) -> Values:
        return {f: " ".join(t.split()) if f == MAX else canonical(t) for f, t in raw.items()}

    def wanted(
        self, version: int, ask: Ask, members: Sequence[Found], originals: Mapping[str, Values]
    ) -> Mapping[str, Values]:
        (found,) = members
        own = originals[found.place]
        limit_us = quota_us(ask.knobs[CPU])
        if version == 2 and MAX in own:
            quota, period = own[MAX].split()
            asked = over(limit_us, period)
            if quota == "max" or asked < int(quota):
                return {found.place: {MAX: f"{asked} {period}"}}
        elif QUOTA in own and PERIOD in own:
            asked = over(limit_us, own[PERIOD])
            if own[QUOTA] == "-1" or asked < int(own[QUOTA]):
                return {found.place: {QUOTA: str(asked)}}
        return {}
