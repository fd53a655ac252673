"""What the demo asks of running processes: readiness and metrics over HTTP, CPU time from /proc."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterable

from streams.demo import leftovers
from streams.demo.trace import Series

TIMEOUT_S = 2.0
OWN_CPU_EVERY_S = 0.2


def free_port() -> int:
    """A port of the loopback address that nobody listens on just now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


async def get(port: int, path: str) -> tuple[int, str]:
    """Status and body of a plain GET on the loopback address; (0, "") when nobody answers."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(f"GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n".encode())
                raw = (await reader.read()).decode(errors="replace")
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return 0, ""
    head, _, body = raw.partition("\r\n\r\n")
    words = head.split(" ", 2)
    return (int(words[1]) if len(words) > 1 and words[1].isdigit() else 0), body


async def ready(port: int) -> bool:
    """Whether the process calls itself ready."""
    status, _body = await get(port, "/readyz")
    return status == 200


async def lags(port: int) -> dict[str, int]:
    """Records not yet folded, by partition, of those that this worker has open."""
    _status, body = await get(port, "/metrics")
    return open_lags(body)


def open_lags(body: str) -> dict[str, int]:
    """The lag of open partitions; a lost one may still be told, as it last was."""
    gates = by_label(body, "slackwater_gate_open")
    lag = by_label(body, "slackwater_lag_records")
    return {label: round(lag.get(label, 0)) for label, is_open in gates.items() if is_open}


def by_label(body: str, name: str) -> dict[str, float]:
    """The samples of one metric in an exposition, by what stands between its braces."""
    found = {}
    for line in body.splitlines():
        head, _, value = line.rpartition(" ")
        if head.startswith(f"{name}{{"):
            found[head.removeprefix(f"{name}{{").rstrip("}")] = float(value)
    return found


class OwnCpu:
    """CPU time of a changing set of processes as one series that only grows."""

    def __init__(self, pids: Callable[[], Iterable[int]], series: Series) -> None:
        self._pids, self._series = pids, series
        self._seen: dict[int, int] = {}
        self._total = 0
        self._task: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Add what was used since the last look; a new process counts from its own beginning."""
        now = leftovers.cpu_us([os.getpid(), *self._pids()])
        if self._seen:
            self._total += sum(max(used - self._seen.get(pid, 0), 0) for pid, used in now.items())
        self._seen = now
        self._series.add(time.monotonic_ns() // 1000, self._total)

    def start(self) -> None:
        self._task = asyncio.create_task(self._often())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _often(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(OWN_CPU_EVERY_S)
