"""Pods by the core scheduling cookie of what runs in them, as a `knob.Surface`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from node_agent.actuators.beneath import UnsafePath, safe_parts
from node_agent.actuators.core_cookies import NONE, CoreCookies
from node_agent.actuators.knob import Raw
from node_agent.actuators.online import OnlineNames
from node_agent.actuators.pod_tasks import PodTasks
from node_agent.cgroup.paths import strictly_inside

COOKIE = "cookie"
OTHERS = "x"
"""Before a cookie that is not ours: a container runtime's, or an earlier start's."""


class Cores:
    """Places are pods: the value is the number that all their threads have, or several."""

    version = 0

    def __init__(
        self, cookies: CoreCookies, tasks: PodTasks, roots: Collection[str], names: OnlineNames
    ) -> None:
        self._cookies, self._tasks = cookies, tasks
        self._roots, self._names = tuple(roots), names

    def close(self) -> None:
        """Give the hierarchy back; cookies stay with those who have them."""
        self._tasks.close()

    def members(self, unit: str, deep: bool) -> list[str]:
        """The pod itself."""
        return [unit]

    def look(self, place: str, files: Sequence[str]) -> tuple[int, Raw] | None:
        """The group's inode, and the numbers of its threads; nothing where none runs."""
        identity = self._tasks.identity(place)
        if identity is None:
            return None
        found = set()
        for task in self._tasks.threads(place) if files else ():
            held = self._cookies.of(task)
            if held is not None:
                number, ours = held
                found.add(str(number) if ours else f"{OTHERS}{number:x}")
        return identity, {COOKIE: "+".join(sorted(found))} if found else {}

    def write(self, place: str, file: str, text: str, original: str | None) -> None:
        """All processes of the pod. Raises UnsafePath, OSError."""
        if not self._names.holds(safe_parts(place)) and not any(
            strictly_inside(place, root) for root in self._roots
        ):
            raise UnsafePath(f"{place!r} is no pod that the inventory names")
        number = int(text) if text.isdecimal() else NONE
        self._cookies.give(number, self._tasks.processes(place))
