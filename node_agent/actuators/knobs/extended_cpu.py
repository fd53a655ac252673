"""CPU of best-effort pods and containers as they asked for it in extended resources.

Shares follow the request, a quota the limit. A group that has a quota of its own keeps it. On v1
the kernel takes no quota above the parent's, and the best-effort root's moves with the load: while
that is narrower than a limit, the limit is no news and is not set (`Roster.ceiling_milli`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from agents.isolation.extended import LEAST_QUOTA_US, NO_LIMIT, quota_us, shares
from node_agent.actuators.extended import LIMIT, REQUEST, asks
from node_agent.actuators.knob import Ask, Found, Knob, Machine, Raw, Values
from node_agent.actuators.knobs.cpu_bandwidth import PERIOD_US
from node_agent.actuators.knobs.cpu_shares import weight_of
from node_agent.actuators.number import canonical
from node_agent.actuators.roster import Roster
from schemas.records import IsolationSettings

SHARES, QUOTA, PERIOD = "cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us"
WEIGHT, MAX = "cpu.weight", "cpu.max"
MOOT, RATIO = "moot", "ratio_permille"


class ExtendedCpu(Knob):
    """Every group is a unit of its own: one that the kernel refuses leaves the others alone."""

    name = "extended_cpu"
    turns = frozenset({"extended_cpu"})
    surface = "cpu"

    def asks(self, settings: IsolationSettings, roster: Roster) -> Iterable[Ask]:
        ceiling = roster.ceiling_milli
        ratio = {RATIO: roster.cpu_ratio_permille} if roster.cpu_ratio_permille > 1000 else {}
        by_class = settings.classes.get("BE", {})
        weighed = "cpu_shares" in by_class or "cpu_shares" in settings.pod_knobs
        for ask in asks(settings, roster, self.name, "cpu_milli"):
            figures = {**ask.figures, **ratio}
            if weighed:  # that knob says shares of every such pod
                figures.pop(REQUEST, None)
            if ceiling is not None and figures.get(LIMIT, 0) > ceiling:
                figures[MOOT] = 1
            yield Ask(ask.unit, ask.knobs, ask.online, alone=ask.alone, figures=figures)

    def takes(self, ask: Ask) -> frozenset[str]:
        return self.turns

    def files(self, version: int) -> tuple[str, ...]:
        return (SHARES, QUOTA, PERIOD) if version == 1 else (WEIGHT, MAX)

    def values(self, version: int, raw: Raw, machine: Machine) -> Values:
        return {f: " ".join(t.split()) if f == MAX else canonical(t) for f, t in raw.items()}

    def wanted(
        self, version: int, ask: Ask, members: Sequence[Found], originals: Mapping[str, Values]
    ) -> Mapping[str, Values]:
        if ask.online:
            return {}
        (found,) = members
        own, said = originals[found.place], ask.figures
        wanted: dict[str, str] = {}
        if REQUEST in said:
            asked = shares(said[REQUEST])
            wanted |= {SHARES: str(asked)} if version == 1 else {WEIGHT: str(weight_of(asked))}
        limit_us = quota_us(said.get(LIMIT, NO_LIMIT), said.get(RATIO, 1000))
        if limit_us == NO_LIMIT:
            return {found.place: wanted}
        if version == 2 and own.get(MAX, "").startswith("max "):
            period = own[MAX].removeprefix("max ")
            wanted[MAX] = f"{over(limit_us, period)} {period}"
        elif own.get(QUOTA) == "-1" and PERIOD in own and MOOT not in said:
            wanted[QUOTA] = str(over(limit_us, own[PERIOD]))
        return {found.place: wanted}

    def wider(self, before: Values, after: Values) -> bool:
        """Whether it needs room in the parent, as a quota does and none does not."""
        return _room(after) >= _room(before)


def _room(values: Values) -> int:
    return max(int(values.get(QUOTA, "-1")), 0)


def over(limit_us: int, period: str) -> int:
    """A quota over 100 ms as one over another period, at least what the kernel takes."""
    return max(limit_us * int(period) // PERIOD_US, LEAST_QUOTA_US)
