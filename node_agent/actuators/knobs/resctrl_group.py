"""Which resctrl group a pod's tasks are in: that of its class.

What is born in a pod is in its parent's group; what a runtime starts anew beside it joins when the
pod's new container is seen, or when its turn comes. Law: `agents.isolation.resctrl`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from agents.isolation.resctrl import GROUPS
from node_agent.actuators.knob import Ask, Found, Values
from node_agent.actuators.resctrl_surfaces import BEST_EFFORT, GROUP, NOWHERE
from node_agent.actuators.roster import Roster
from node_agent.actuators.task_knob import TaskKnob
from schemas.records import IsolationSettings


class ResctrlGroup(TaskKnob):
    """A pod in which nothing runs has no value."""

    name = "resctrl_group"
    turns = frozenset({"resctrl_group"})
    surface = "resctrl_tasks"
    always_there = True

    def asks(self, settings: IsolationSettings, roster: Roster) -> Iterable[Ask]:
        for ask in super().asks(settings, roster):
            if 0 <= ask.knobs[self.name] < len(GROUPS):
                yield ask

    def takes(self, ask: Ask) -> frozenset[str]:
        return self.turns if _group(ask) == BEST_EFFORT else frozenset()

    def files(self, version: int) -> tuple[str, ...]:
        return (GROUP,)

    def wanted(
        self, version: int, ask: Ask, members: Sequence[Found], originals: Mapping[str, Values]
    ) -> Mapping[str, Values]:
        if ask.online and self.takes(ask):
            return {}
        return {found.place: {GROUP: _group(ask)} for found in members}

    def writes(self, version: int, before: Values, after: Values) -> list[tuple[str, str]]:
        if before.get(GROUP) == after.get(GROUP):
            return []
        return [(GROUP, _aim(after[GROUP]))]

    def is_word(self, key: str, text: str) -> bool:
        return text in (*GROUPS, NOWHERE)  # else some of the tasks are new

    def agrees(self, now: Values, then: Values) -> bool:
        return GROUP not in now or GROUP not in then or now[GROUP] == _aim(then[GROUP])


def _aim(text: str) -> str:
    """The group that all tasks are to be in; there is none of several."""
    return text if text in GROUPS else NOWHERE


def _group(ask: Ask) -> str:
    return GROUPS[ask.knobs["resctrl_group"]]
