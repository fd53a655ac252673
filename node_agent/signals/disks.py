"""How long the machine's disks took: /proc/diskstats, summed over whole disks.

Latency = growth of time / growth of operations, for reads and writes. Partitions would count
twice, and so would what stands on other disks (device mapper, md, loop): a disk counts when it is
listed in /sys/block and is not one of the virtual block devices.
"""

from __future__ import annotations

import os

from node_agent.cgroup.handles import NodeFiles
from node_agent.signals.base import Value

NAME = "disks"
STATS = "proc/diskstats"
_VIRTUAL = "/devices/virtual/block/"
_US_PER_MS = 1000


class Disks:
    """The reader; it looks a device up once."""

    name = NAME
    columns = ("disk_read_us", "disk_write_us", "disk_reads", "disk_writes", "disk_busy_us")

    def __init__(self, files: NodeFiles) -> None:
        self._files = files
        self._whole: dict[bytes, bool] = {}

    def there(self) -> bool:
        """Every machine has the file; one without disks says nothing of them."""
        return os.path.isfile(f"{self._files.root}/{STATS}")

    def read(self, now_us: int) -> tuple[Value, ...] | None:
        """Time of reads and of writes, their numbers, time at work; None: no disk at all.

        Fields from the 4th on: reads, merged, sectors, ms, writes, merged, sectors, ms, in flight,
        ms at work.
        """
        data = self._files.read(STATS, now_us)
        if data is None:
            return None
        rows = [line.split() for line in data.splitlines()]
        disks = [row for row in rows if len(row) >= 13 and self._is_disk(row[2])]
        if not disks:
            return None
        total = [sum(int(row[place]) for row in disks) for place in (6, 10, 3, 7, 12)]
        read_ms, write_ms, reads, writes, busy_ms = total
        return read_ms * _US_PER_MS, write_ms * _US_PER_MS, reads, writes, busy_ms * _US_PER_MS

    def _is_disk(self, name: bytes) -> bool:
        known = self._whole.get(name)
        if known is None:
            # A slash in a device's name is a ! in /sys.
            word = os.fsdecode(name).replace("/", "!")
            link = f"{self._files.root}/sys/block/{word}"
            known = os.path.islink(link) and _VIRTUAL not in os.path.realpath(link) + "/"
            self._whole[name] = known
        return known
