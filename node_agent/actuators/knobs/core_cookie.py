"""Who may sit on the siblings of one core at a time: pods with equal numbers, and no others.

Where the kernel has core scheduling and the CPUs have siblings. A pod that has a cookie of somebody
else's (a container runtime can give each pod its own) is left alone. Law: `agents.isolation.
core_sched`.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence

from node_agent.actuators.cores import COOKIE, OTHERS
from node_agent.actuators.failure import Named
from node_agent.actuators.knob import Ask, Found, Values
from node_agent.actuators.task_knob import TaskKnob

NOBODYS = "0"


class CoreCookie(TaskKnob):
    """A pod in which nothing runs has no value."""

    name = "core_cookie"
    turns = frozenset({"core_cookie"})
    surface = "cores"
    always_there = True

    def files(self, version: int) -> tuple[str, ...]:
        return (COOKIE,)

    def wanted(
        self, version: int, ask: Ask, members: Sequence[Found], originals: Mapping[str, Values]
    ) -> Mapping[str, Values]:
        """Raises Named for a pod that has somebody else's cookie."""
        for found in members:
            if OTHERS in originals[found.place].get(COOKIE, ""):
                text = f"{found.place} has a core scheduling cookie that is not ours"
                raise Named(errno.EBUSY, "foreign_cookie", text)
        asked = str(max(ask.knobs["core_cookie"], 0))
        return {found.place: {COOKIE: asked} for found in members}

    def writes(self, version: int, before: Values, after: Values) -> list[tuple[str, str]]:
        if before.get(COOKIE) == after.get(COOKIE):
            return []
        return [(COOKIE, _aim(after[COOKIE]))]

    def is_word(self, key: str, text: str) -> bool:
        return "+" not in text  # else some of the threads are new

    def agrees(self, now: Values, then: Values) -> bool:
        return COOKIE not in now or COOKIE not in then or now[COOKIE] == _aim(then[COOKIE])


def _aim(text: str) -> str:
    """What can be given: a number of ours, or none."""
    return text if text.isdecimal() else NOBODYS
