"""The teller: pace, how many at once, who waits after a failure, who goes first."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

from scheduler_bridge.metrics import Metrics
from scheduler_bridge.reconcile import Amount, Patch
from scheduler_bridge.sinks import Sink
from scheduler_bridge.teller import Teller
from tests.support import patient


def patch(node: str) -> Patch:
    amount = Amount(1, 1)
    return Patch(node, amount, True, "rise", "usage", (1, 1), 7, "abc", None, 1000, offered=amount)


class Slow:
    """Takes a while to tell a node, and fails for those that begin with a dash."""

    def __init__(self, takes_s: float = 0.0, error: Exception | None = None) -> None:
        self._takes_s = takes_s
        self._error = error or OSError("away")
        self.began: list[tuple[str, float]] = []
        self.done: set[str] = set()
        self.most = self._now = 0

    async def tell(self, one: Patch) -> None:
        self.began.append((one.node, time.monotonic()))
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            await asyncio.sleep(self._takes_s)
        finally:
            self._now -= 1
        if one.node.startswith("-"):
            raise self._error
        self.done.add(one.node)


@asynccontextmanager
async def telling(sink: Slow, nodes: list[str], per_s: int, at_once: int) -> AsyncIterator[Teller]:
    teller = Teller(cast("Sink", sink), Metrics(), per_s, at_once)
    task = asyncio.create_task(
        teller.run(lambda: [patch(node) for node in nodes if node not in sink.done], 0.05)
    )
    try:
        yield teller
        assert not task.done(), "it goes on"
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(check: Callable[[], Any], within_s: float = 10) -> None:
    async with asyncio.timeout(patient(within_s)):
        while not check():  # noqa: ASYNC110 - the condition is another task's
            await asyncio.sleep(0.005)


async def test_several_at_once_and_each_node_once() -> None:
    sink = Slow(0.1)
    nodes = [f"n{i:02}" for i in range(20)]
    async with telling(sink, nodes, per_s=1000, at_once=5) as teller:
        await until(lambda: teller.told == 20)
    assert sink.most == 5
    assert sorted(node for node, _ in sink.began) == nodes


async def test_no_second_has_more_than_the_pace() -> None:
    sink = Slow()
    async with telling(sink, [f"n{i:03}" for i in range(75)], 30, 16) as teller:
        await until(lambda: teller.told == 75)
    times = [at for _, at in sink.began]
    assert times == sorted(times)
    for first, later in zip(times, times[30:], strict=False):
        assert later - first > 0.9


async def test_a_node_that_fails_waits_and_harms_no_other() -> None:
    sink = Slow(error=RuntimeError("a bug"))
    async with telling(sink, ["-bad", "a", "b"], per_s=1000, at_once=1) as teller:
        await until(lambda: teller.told == 2)
        await until(lambda: sum(node == "-bad" for node, _ in sink.began) == 3)
    tries = [at for node, at in sink.began if node == "-bad"]
    assert tries[1] - tries[0] >= 0.24
    assert tries[2] - tries[1] >= 0.49, "longer each time"


async def test_what_becomes_urgent_goes_next() -> None:
    sink = Slow(0.01)
    nodes = [f"n{i:03}" for i in range(100)]
    async with telling(sink, nodes, per_s=50, at_once=1):
        await until(lambda: len(sink.done) >= 5)
        nodes.insert(0, "urgent")
        await until(lambda: "urgent" in sink.done)
        assert len(sink.done) < 40
