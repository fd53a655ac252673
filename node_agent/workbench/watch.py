"""A witness of what happens on the workbench: CPU time of the two groups, and the quota as it is.

Run in a thread by `node_agent.workbench`'s command. It reads the kernel's own files beside the
agent and never writes, so what it tells is evidence about the agent, not from it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from node_agent.cgroup.files import FILES
from node_agent.cgroup.handles import Descriptors, GroupFiles, NodeFiles, Vanished
from node_agent.cgroup.layout import Layout
from node_agent.signals import best_effort, cpu_usage

LOOK_S = 0.004  # how late a change of the quota may be seen
USAGE_EVERY = 12  # looks between two sights of the counters
_DESCRIPTORS = 32
Tell = Callable[[dict[str, Any]], None]


class Watch:
    """Tells events ``usage`` (about every 50 ms) and ``quota`` (at each change)."""

    def __init__(self, layout: Layout, online: str, best_effort_root: str, tell: Tell) -> None:
        """``online``, ``best_effort_root``: groups that exist. Raises OSError without cpuacct."""
        hierarchy = layout.controllers.get("cpuacct")
        if hierarchy is None:
            raise OSError("no CPU accounting here: mount cpuacct (v1) or cgroup2")
        descriptors = Descriptors(_DESCRIPTORS)
        self._v1 = hierarchy.version == 1
        name = FILES["cpu_usage"]
        file = f"{hierarchy.mount}/{name.v1 if self._v1 else name.v2}"
        self._machine_file = file.removeprefix(layout.root).lstrip("/")
        self._machine = NodeFiles(layout.root, descriptors)
        self._online = GroupFiles(layout, online, descriptors)
        self._best_effort = GroupFiles(layout, best_effort_root, descriptors)
        self._quota_v1 = (
            layout.controllers["cpu"].version == 1 if "cpu" in layout.controllers else None
        )
        self._tell = tell
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread and close the files."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        for files in (self._machine, self._online, self._best_effort):
            files.close()

    def _watch(self) -> None:
        looks, quota_milli = 0, None
        while not self._stop.wait(LOOK_S):
            try:
                now_milli = self._quota()
                if now_milli is not None and now_milli != quota_milli:
                    quota_milli = now_milli
                    self._tell({"event": "quota", "mono_us": _now_us(), "milli": now_milli})
                if looks % USAGE_EVERY == 0:
                    self._tell_usage()
            except Vanished:
                return  # the groups are being removed: the show is over
            looks += 1

    def _tell_usage(self) -> None:
        at = _now_us()
        online = self._used(self._online.read("cpu_usage", at))
        best = self._used(self._best_effort.read("cpu_usage", at))
        machine = self._used(self._machine.read(self._machine_file, at))
        if online is not None and best is not None and machine is not None:
            self._tell(
                {
                    "event": "usage",
                    "mono_us": at,
                    "online_us": online,
                    "best_effort_us": best,
                    "machine_us": machine,
                }
            )

    def _used(self, data: bytes | None) -> int | None:
        if data is None:
            return None
        return (cpu_usage.parse_v1(data) if self._v1 else cpu_usage.parse_v2(data))[0]

    def _quota(self) -> int | None:
        """Millicores, -1 without a quota, None where the kernel has no such file."""
        at = _now_us()
        quota = self._best_effort.read("cpu_quota", at)
        if quota is None:
            return None
        if not self._quota_v1:
            return best_effort.parse_quota_v2(quota)[0]
        period = self._best_effort.read("cpu_period", at)
        return None if period is None else best_effort.parse_quota_v1(quota, period)[0]


def _now_us() -> int:
    return time.monotonic_ns() // 1000
