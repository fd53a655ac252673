"""What the kernel's memory killer takes of a group: all of it at once; and in which order.

`memory.oom.group` is set on best-effort groups alone, for it makes the kernel kill more; 0 asks
nothing. `memory.priority` with its switch is the vendor's (Anolis kernels): 0 goes first, 12 last;
an online pod's is only ever raised. The switch stands on the groups above too, which choose among
those below them. Law: `agents.isolation.oom`.
"""

from __future__ import annotations

from collections.abc import Iterable

from node_agent.actuators.knob import Ask, Values
from node_agent.actuators.number import Number, Numbers
from node_agent.actuators.roster import Roster
from schemas.records import IsolationSettings

GROUP, PRIORITY, SWITCH = "oom_kill_group", "oom_priority", "oom_priority_switch"
MOST_PRIORITY = 12


class OomGroup(Numbers):
    """A pod and the groups in it."""

    name = "oom_group"
    turns = frozenset({GROUP, PRIORITY})
    surface = "memory"
    deep = True
    rows = (
        Number(GROUP, None, "memory.oom.group", 0, 1, more=0),
        Number(PRIORITY, "memory.priority", "memory.priority", 0, MOST_PRIORITY),
        Number(SWITCH, "memory.use_priority_oom", "memory.use_priority_oom", 0, 1),
    )

    def asks(self, settings: IsolationSettings, roster: Roster) -> Iterable[Ask]:
        found = list(super().asks(settings, roster))
        yield from (self._switched(ask) for ask in found if not ask.alone)
        if any(PRIORITY in ask.knobs for ask in found):
            for tier, group in sorted(roster.tiers.items()):
                yield Ask(group, {SWITCH: 1}, tier != "BestEffort", alone=True)

    def _switched(self, ask: Ask) -> Ask:
        knobs = {name: value for name, value in ask.knobs.items() if name != GROUP or value}
        if PRIORITY in knobs:
            knobs[SWITCH] = 1
        return Ask(ask.unit, knobs, ask.online)

    def takes(self, ask: Ask) -> frozenset[str]:
        return frozenset({GROUP} & ask.knobs.keys())

    def lacks(self, ask: Ask, found: Values) -> frozenset[str]:
        return super().lacks(ask, found) - {SWITCH}
