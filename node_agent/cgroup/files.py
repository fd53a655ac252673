"""The one table of control group files: our name -> controller, file in v1, file in v2.

Read by `node_agent.cgroup.layout.Layout.place`; signals and actuators use the names only, so a
file is spelt nowhere else. None: that version has no such file.
"""

from __future__ import annotations

from typing import NamedTuple

UNIFIED = "unified"  # the v2 mount itself: its core files need no controller


class FileRow(NamedTuple):
    """One file; ``whole``: longer than one page in several records, read until its end;
    ``seldom``: read so seldom that no descriptor of it is kept.
    """

    controller: str
    v1: str | None
    v2: str | None
    whole: bool = False
    seldom: bool = False


FILES: dict[str, FileRow] = {
    "cpu_usage": FileRow("cpuacct", "cpuacct.usage", "cpu.stat"),
    "cpu_stat": FileRow("cpu", "cpu.stat", "cpu.stat"),
    "cpu_quota": FileRow("cpu", "cpu.cfs_quota_us", "cpu.max"),
    "cpu_period": FileRow("cpu", "cpu.cfs_period_us", None),  # v2: second word of cpu.max
    "cpu_burst": FileRow("cpu", "cpu.cfs_burst_us", "cpu.max.burst"),
    "cpu_idle": FileRow("cpu", "cpu.idle", "cpu.idle"),
    "memory_stat": FileRow("memory", "memory.stat", "memory.stat"),
    "memory_current": FileRow("memory", "memory.usage_in_bytes", "memory.current"),
    "memory_limit": FileRow("memory", "memory.limit_in_bytes", "memory.max", seldom=True),
    "memory_numa": FileRow("memory", "memory.numa_stat", "memory.numa_stat", seldom=True),
    "memory_idle": FileRow(  # Anolis kernels
        "memory", "memory.idle_page_stats", "memory.idle_page_stats", seldom=True
    ),
    "oom": FileRow("memory", "memory.oom_control", "memory.events", seldom=True),
    "io_bytes": FileRow("io", "blkio.throttle.io_service_bytes_recursive", "io.stat", whole=True),
    "io_operations": FileRow(
        "io", "blkio.throttle.io_serviced_recursive", "io.stat", whole=True, seldom=True
    ),
    "psi_cpu": FileRow(UNIFIED, None, "cpu.pressure"),
    "psi_memory": FileRow(UNIFIED, None, "memory.pressure"),
    "psi_io": FileRow(UNIFIED, None, "io.pressure"),
    "threads": FileRow("cpuacct", "tasks", "cgroup.threads", whole=True),
    "procs": FileRow("cpuacct", "cgroup.procs", "cgroup.procs", whole=True),
    "events": FileRow(UNIFIED, None, "cgroup.events"),
    "kill": FileRow(UNIFIED, None, "cgroup.kill"),
    "freeze": FileRow(UNIFIED, None, "cgroup.freeze"),
}
