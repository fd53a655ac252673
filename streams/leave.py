"""The last acts of a process: called by the commands that go on, and by `topic_reader`."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from typing import NoReturn

log = logging.getLogger(__name__)

STOP_S = 2.0


async def stopped(*stops: Callable[[], Awaitable[None]]) -> None:
    """Call each in turn, for `STOP_S` at most, whatever it raises.

    A Kafka client whose broker is away may wait for ever when it is stopped, or end with the
    cancellation of a task of its own, which must not look like a cancellation of ours.
    """
    for stop in stops:
        task = asyncio.ensure_future(stop())
        done, _ = await asyncio.wait({task}, timeout=STOP_S)
        if not done:
            task.cancel()
        elif task.cancelled() or task.exception() is not None:
            log.debug("a client did not stop in order: %r", task)


def leave(code: int) -> NoReturn:
    """End the process with ``code`` when its own work is done.

    Faust fetches in a thread that waits for ever for a broker that is away, and the interpreter
    would wait for that thread; what had to be saved has been saved by then.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
