"""An online service that can be hurt: an open-loop latency probe, and a load that steps.

The demo and the closed-loop bench run both in `<name>/online/<pod>`. The probe is due every
millisecond and serves for 300 us of CPU; its delay is finish - due - service, so a backlog counts
in full (no coordinated omission). The load burns a share of one core that is changed by a line on
its standard input or by a schedule.
"""

from __future__ import annotations

import mmap
import os
import select
import struct
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from node_agent.workbench.worker import Worker

PERIOD_US = 1_000
SERVICE_US = 300
RING = 65_536  # delays kept: a minute
LOAD_PERIOD_US = 2_000
_HEAD = struct.Struct("<Q")
_DELAY = struct.Struct("<QII")  # finished at (monotonic us), delay us, spare


@dataclass(frozen=True, slots=True)
class Delay:
    """One probe: when it finished and how late that was."""

    mono_us: int
    delay_us: int


class Probe:
    """The latency probe, and a reader of what it measured."""

    def __init__(
        self,
        group: str,
        delays: Path,
        period_us: int = PERIOD_US,
        service_us: int = SERVICE_US,
    ) -> None:
        """``delays``: a file that is made and filled; the caller's to remove."""
        delays.write_bytes(bytes(_HEAD.size + RING * _DELAY.size))
        self._delays = delays
        config = {"delays": str(delays), "period_us": period_us, "service_us": service_us}
        self._worker = Worker("node_agent.workbench.online", group, {"part": "probe", **config})

    @property
    def alive(self) -> bool:
        """Whether the service still runs."""
        return self._worker.alive

    def count(self) -> int:
        """Probes so far."""
        with self._delays.open("rb") as file:
            return int(_HEAD.unpack(file.read(_HEAD.size))[0])

    def since(self, first: int) -> list[Delay]:
        """Probes number ``first`` and after, oldest first; those that left the ring are missing."""
        raw = self._delays.read_bytes()
        (count,) = _HEAD.unpack_from(raw)
        found = []
        for number in range(max(first, count - RING), count):
            mono_us, delay_us, _ = _DELAY.unpack_from(raw, _HEAD.size + number % RING * _DELAY.size)
            found.append(Delay(mono_us, delay_us))
        return found

    def stop(self) -> None:
        """End the service."""
        self._worker.stop()


class Load:
    """A second process of the online side that uses ``milli`` of one core, up to 1000."""

    def __init__(
        self, group: str, milli: int = 0, schedule: Sequence[tuple[int, int]] = ()
    ) -> None:
        """``schedule``: (ms after the start, milli) steps in ascending order."""
        config = {"part": "load", "milli": milli, "schedule": [list(step) for step in schedule]}
        self._worker = Worker("node_agent.workbench.online", group, config)

    @property
    def alive(self) -> bool:
        """Whether the load still runs."""
        return self._worker.alive

    def set(self, milli: int) -> None:
        """Step to this share of a core."""
        self._worker.say(str(milli))

    def stop(self) -> None:
        """End the load."""
        self._worker.stop()


def percentile_us(delays: Sequence[Delay], permille: int) -> int:
    """The nearest-rank percentile of the delays. Raises ValueError for none."""
    if not delays:
        raise ValueError("no delays to take a percentile of; wait for the probe's first second")
    ordered = sorted(each.delay_us for each in delays)
    return ordered[min(len(ordered) - 1, len(ordered) * permille // 1000)]


def work(config: dict[str, Any]) -> None:
    """In the worker."""
    if config["part"] == "probe":
        _serve(config["delays"], config["period_us"], config["service_us"])
    else:
        _burn(config["milli"], config["schedule"])


def _serve(path: str, period_us: int, service_us: int) -> None:
    period_ns, service_ns = period_us * 1000, service_us * 1000
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as ring:
        due, number = time.monotonic_ns() + period_ns, 0
        while True:
            early = due - time.monotonic_ns()
            if early > 0:
                time.sleep(early / 1e9)
            _spin(service_ns)
            finished = time.monotonic_ns()
            delay_us = max(0, (finished - due - service_ns) // 1000)
            at = _HEAD.size + number % RING * _DELAY.size
            _DELAY.pack_into(ring, at, finished // 1000, min(delay_us, 0xFFFFFFFF), 0)
            number += 1
            _HEAD.pack_into(ring, 0, number)
            due += period_ns


def _burn(milli: int, schedule: list[list[int]]) -> None:
    """Spin for a share of each period; a line on standard input or a due step changes the share."""
    began = due = time.monotonic_ns()
    while True:
        now = time.monotonic_ns()
        while schedule and now - began >= schedule[0][0] * 1_000_000:
            milli = schedule.pop(0)[1]
        _spin(LOAD_PERIOD_US * min(milli, 1000))
        due += LOAD_PERIOD_US * 1000
        early_s: float | None = max(0, due - time.monotonic_ns()) / 1e9
        if not milli:  # nothing to do before the next word
            early_s = None if not schedule else schedule[0][0] / 1e3 - (now - began) / 1e9
        if select.select([sys.stdin], [], [], early_s)[0]:
            line = os.read(sys.stdin.fileno(), 4096).split()
            if not line:  # the starter has closed the pipe
                return
            milli = int(line[-1])
        if time.monotonic_ns() - due > LOAD_PERIOD_US * 1000:  # a load does not catch up
            due = time.monotonic_ns()


def _spin(cpu_ns: int) -> None:
    """Use so much CPU time of this thread."""
    until = time.thread_time_ns() + cpu_ns
    while time.thread_time_ns() < until:
        pass
