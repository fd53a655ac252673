"""An update that is on its way counts as shown, and what is told is what is wanted then."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from scheduler_bridge.ledger.yarn import Answer, NodeManager
from scheduler_bridge.ledger.yarn_system import SETTLE_MS, YarnSystem
from scheduler_bridge.life import mono_ms
from scheduler_bridge.reconcile import Amount

GIB = 1 << 30


class Slow:
    """A ResourceManager whose updates take effect when `done` is set; ``silent``: or get lost."""

    def __init__(self) -> None:
        self.total = Amount(4_000, GIB)
        self.asked = asyncio.Event()
        self.done = asyncio.Event()
        self.told: list[int] = []
        self.silent = False

    async def look(self) -> Answer:
        one = NodeManager("n1:1", "n1", "RUNNING", self.total, Amount(0, 0), 0)
        return Answer(1, (one,), 0)

    async def tell(self, node_id: str, amount: Amount) -> None:
        del node_id
        self.told.append(amount.cpu_milli)
        self.asked.set()
        await self.done.wait()
        if self.silent:
            raise OSError("no answer")
        self.total = amount

    async def close(self) -> None:
        """Nothing is held."""


async def until(true: Any, within_s: float = 10) -> None:
    async with asyncio.timeout(within_s):
        while not true():  # noqa: ASYNC110  # the condition is another task's
            await asyncio.sleep(0.005)


async def test_an_update_under_way_counts_as_shown_until_a_look_says_otherwise() -> None:
    manager: Any = Slow()
    system = YarnSystem(manager, "yarn", lambda: ["n1"], lambda: True, look_s=0.02)
    task = asyncio.create_task(system.run())
    try:
        await until(lambda: system.looks > 1)
        begun_ms = mono_ms()
        assert not system.seen("n1", begun_ms).settled, "one before us may have told it more"
        assert system.seen("n1", begun_ms + SETTLE_MS).settled
        await until(lambda: system.seen("n1", mono_ms()).settled)
        system.wants("n1", Amount(8_000, GIB))
        await manager.asked.wait()
        assert system.seen("n1", mono_ms()).shows.cpu_milli == 8_000, "it may show that any moment"
        system.wants("n1", Amount(6_000, GIB))
        manager.done.set()
        await until(lambda: system.seen("n1", mono_ms()).shows.cpu_milli == 6_000)
        assert manager.told == [8_000, 6_000]
        manager.silent = True
        system.wants("n1", Amount(7_000, GIB))
        await until(lambda: not system.seen("n1", mono_ms()).settled)
        assert system.seen("n1", mono_ms()).shows.cpu_milli == 7_000, "unanswered it may hold"
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
