"""Tells a sink what is due: at a pace, several at once, never one node twice at the same time.

The loop runs it. What is due is asked anew several times a second, so a fall that arrives while
rises wait goes first. A node that could not be told waits a little and harms no other.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from asyncio_throttle.throttler import Throttler

if TYPE_CHECKING:
    from scheduler_bridge.metrics import Metrics
    from scheduler_bridge.reconcile import Patch
    from scheduler_bridge.sinks import Sink

log = logging.getLogger("slackwater.bridge")
TURN_S, LONGEST_TURN_S = 0.1, 1.0  # patches chosen at once are those that fit in so much time
DUE_SHARE = 0.1  # of the time goes into choosing, where thousands are due
LEAST_TURN_S = 0.02  # news within so much time is looked at together
FIRST_WAIT_S, LONGEST_WAIT_S = 0.25, 2.0
COMPLAIN_EVERY_S = 5.0


class Teller:
    """``per_s`` patches a second at most, ``at_once`` on their way at most."""

    def __init__(self, sink: Sink, metrics: Metrics, per_s: int, at_once: int) -> None:
        self.told = 0
        self._sink = sink
        self._metrics = metrics
        self._per_s = per_s
        self._throttle = Throttler(rate_limit=per_s, period=1.0)
        self._free = asyncio.Semaphore(at_once)
        self._going: set[str] = set()
        self._failed: dict[str, tuple[float, float]] = {}  # node -> not before, waited
        self._news = asyncio.Event()
        self._complained_s = float("-inf")

    def wake(self) -> None:
        """Something may be due now."""
        self._news.set()

    async def run(self, due: Callable[[], list[Patch]], poll_s: float) -> None:
        """Tell until cancelled; ``due`` gives what is due now, most urgent first."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._news.clear()
                began_s = time.monotonic()
                waiting = [patch for patch in due() if self._may(patch.node)]
                turn_s = max(TURN_S, (time.monotonic() - began_s) / DUE_SHARE)
                few = max(1, int(self._per_s * min(LONGEST_TURN_S, turn_s)))
                self._metrics.set("patches_waiting", len(waiting))
                for patch in waiting[:few]:
                    async with self._throttle:
                        await self._free.acquire()
                    self._going.add(patch.node)
                    group.create_task(self._tell(patch))
                if len(waiting) > few:
                    await asyncio.sleep(0)
                    continue
                await asyncio.sleep(LEAST_TURN_S)
                try:
                    async with asyncio.timeout(poll_s):
                        await self._news.wait()
                except TimeoutError:
                    continue

    def _may(self, node: str) -> bool:
        not_before_s, _ = self._failed.get(node, (0.0, 0.0))
        return node not in self._going and not_before_s <= time.monotonic()

    async def _tell(self, patch: Patch) -> None:
        try:
            await self._sink.tell(patch)
        except Exception as error:  # noqa: BLE001 - one node's failure must not end the bridge
            self._failure(patch.node, error)
        else:
            self.told += 1
            self._failed.pop(patch.node, None)
            self._metrics.count("patches", patch.why)
        finally:
            self._going.discard(patch.node)
            self._free.release()

    def _failure(self, node: str, error: Exception) -> None:
        self._metrics.count("sink_errors")
        now_s = time.monotonic()
        _, waited_s = self._failed.get(node, (0.0, 0.0))
        wait_s = min(LONGEST_WAIT_S, max(FIRST_WAIT_S, waited_s * 2))
        self._failed[node] = (now_s + wait_s, wait_s)
        if now_s - self._complained_s >= COMPLAIN_EVERY_S:
            self._complained_s = now_s
            bug = None if isinstance(error, OSError) else error
            log.warning("%s was not told: %s; trying again", node, error, exc_info=bug)
