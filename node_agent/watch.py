"""One online group that the reflex looks at: its stalled time, its pulse, whose fault a jump is.

`node_agent.reflex` holds one for each online pod, and for groups that hold only such. Arithmetic:
`agents.reflex`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from agents.reflex import Pulse, Usual, is_held_up, is_own_limit, runs_more
from node_agent.cgroup.handles import GroupFiles, Vanished
from node_agent.cgroup.layout import Layout
from node_agent.cgroup.walk import children
from node_agent.signals import cpu_throttling, cpu_usage, psi
from node_agent.signals.runq_wait import GroupWait
from schemas.policy import Reflex as Rule

LIMITED_GROUPS = 16  # of a pod, whose throttled time is looked at
MOST_PPM = 1 << 40  # of CPU time: as many CPUs as there may be
Usage = Callable[[bytes], tuple[int | None, ...]]


class Watch:
    """One online group: where its stalled time is read, its pulse, and what CPU it usually uses."""

    __slots__ = (
        "files", "pulse", "struck_us", "throttled_us", "uid", "usage", "use", "used_us", "waits",
    )  # fmt: skip

    def __init__(self, uid: str, files: GroupFiles, usage: Usage) -> None:
        """``uid``: empty for a group of many pods; ``usage``: `usage_parser`'s."""
        self.uid, self.files, self.usage = uid, files, usage
        self.pulse, self.use = Pulse(), Usual(MOST_PPM)
        self.struck_us = self.used_us = self.throttled_us = 0  # as of the first look beyond normal
        self.waits: GroupWait | None = None  # where the kernel keeps no pressure

    def stalled_us(self, now_us: int) -> int | None:
        """The counter; None: it cannot be read here. Raises Vanished."""
        data = self.files.glance("psi_cpu", now_us)
        if data is not None:
            return psi.first_total(data)
        if not self.uid:  # of many pods a few threads say nothing
            return None
        if self.waits is None:
            self.waits = GroupWait(self.files)
        return self.waits.total_us(now_us)

    def note_struck(self, now_us: int) -> None:
        """The first look beyond normal: what later ones are compared with."""
        self.struck_us, self.used_us = now_us, self._used(now_us)
        self.throttled_us = throttled_us(self.files)

    def is_held_up(self, now_us: int, rule: Rule) -> bool:
        """Whether that lasts long enough to act, by whoever."""
        if self.pulse.strikes < rule.polls:
            return False
        passed_us, ran_us = now_us - self.struck_us, self._used(now_us) - self.used_us
        busier = runs_more(ran_us, passed_us, self.use.ppm, rule)
        return is_held_up(self.pulse, busier=busier, rule=rule)

    def is_own_limit(self) -> bool:
        """Stopped by a quota of its own since the first strike: that is no contention."""
        grown_us = throttled_us(self.files) - self.throttled_us
        return is_own_limit(grown_us, self.pulse.beyond_us)

    def cool(self) -> None:
        """Looked at no longer: what it holds open is given back."""
        if self.waits is not None:
            self.waits.close()

    def _used(self, now_us: int) -> int:
        """CPU time so far; 0 where nobody tells, which makes nobody busier."""
        try:
            data = self.files.read("cpu_usage", now_us)
        except Vanished:
            return 0
        return (0 if data is None else self.usage(data)[0]) or 0


def throttled_us(files: GroupFiles) -> int:
    """Time in which quotas of the pod and of its containers stopped it, so far; read when asked."""
    place = files.layout.place("cpu_stat", files.group)
    if place is None:
        return 0
    parse = cpu_throttling.parse_v1 if place.version == 1 else cpu_throttling.parse_v2
    found = [place.directory]
    for directory in found:
        found += [f"{directory}/{name}" for name in children(directory)]
        if len(found) >= LIMITED_GROUPS:
            break
    total_us = 0
    for directory in found[:LIMITED_GROUPS]:
        try:
            total_us += parse(Path(f"{directory}/{place.file}").read_bytes())[0] or 0
        except OSError:  # a container that ended
            continue
    return total_us


def usage_parser(layout: Layout) -> Usage:
    """How this machine's usage files are read."""
    hierarchy = layout.hierarchy("cpuacct")
    v1 = hierarchy is not None and hierarchy.version == 1
    return cpu_usage.parse_v1 if v1 else cpu_usage.parse_v2
