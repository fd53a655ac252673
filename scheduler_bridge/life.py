"""How a long-running command of the bridge lives: parts as tasks, metrics beside them, an end.

Used by the bridge's loop, the evictor, the extender and admission.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from typing import Any

from scheduler_bridge.metrics import Metrics, serve

log = logging.getLogger("slackwater.bridge")
Part = Callable[[], Awaitable[Any]]


def mono_ms() -> int:
    """Milliseconds of a clock that only grows; it stands still while the machine is suspended."""
    return time.monotonic_ns() // 1_000_000


async def live(
    parts: Mapping[str, Part],
    stop: asyncio.Event,
    leaving: Part | None = None,
    first: Collection[str] = (),
) -> None:
    """Run all parts until one ends, ``stop`` is set, or SIGTERM or SIGINT comes.

    Then the parts named ``first`` are cancelled, ``leaving`` is awaited, the others are cancelled.
    What a part died of is raised: a bug ends the process instead of leaving half of it.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    tasks = {name: asyncio.ensure_future(part()) for name, part in parts.items()}
    tasks["stop"] = asyncio.create_task(stop.wait(), name="stop")
    try:
        done, _ = await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await _cancel([tasks.pop(name) for name in first])
        if leaving is not None:
            await leaving()
        await _cancel(tasks.values())


@contextlib.asynccontextmanager
async def shown(
    metrics: Metrics,
    host: str,
    port: int | None,
    alive: Callable[[], bool],
    ready: Callable[[], bool],
) -> AsyncIterator[None]:
    """Answer /metrics, /healthz and /readyz meanwhile; ``port`` None: do not, 0: a free one."""
    if port is None:
        yield
        return
    server, port = serve(metrics, host, port, alive, ready)
    log.info("metrics on http://%s:%d/metrics", host, port)
    try:
        yield
    finally:
        await asyncio.to_thread(server.shutdown)
        server.server_close()


async def _cancel(tasks: Collection[asyncio.Future[Any]]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task
