"""Keeps the ledger: says what this bridge's systems hold, answers claims, deals out the shares.

A task of `scheduler_bridge.loop`. Level by level, never by memory: each turn compares the book
(folded from the log by the bridge's own reader) with what the systems show and hold, and writes
what differs. It answers only in partitions where it reigns, that is, where the log's newest
`LedgerReign` is its own; whoever leads takes them over, and the log itself makes void what an
earlier one says after that.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from aiokafka.errors import KafkaError

from scheduler_bridge.ledger.amounts import NOTHING
from scheduler_bridge.ledger.book import Held
from scheduler_bridge.ledger.claims import Lendable
from scheduler_bridge.ledger.log import LedgerLog, partition_of
from scheduler_bridge.ledger.systems import Borrower
from scheduler_bridge.ledger.turn import Node, Records, of_node
from scheduler_bridge.life import mono_ms
from scheduler_bridge.reconcile import Amount, Desired
from scheduler_bridge.view import View
from schemas.ledger_records import LedgerReign

log = logging.getLogger("slackwater.bridge")
TURN_S = 0.05
REST = 3  # times as long as a turn took
AT_ONCE = 100  # nodes looked at and written before others on the loop have their turn
REIGN_AGAIN_S = 2.0
NEVER = 2**63


class LedgerTaken(RuntimeError):
    """Another bridge took the ledger over, and nothing elects between the two."""


class Keeper:
    """``leads``: whether this bridge may write now; None where nothing elects one.

    ``own`` names this process in the log. ``ready``: whether the log was read to its end.
    """

    def __init__(
        self,
        own: str,
        view: View,
        out: LedgerLog,
        borrowers: Sequence[Borrower],
        ready: Callable[[], bool],
        leads: Callable[[], bool] | None = None,
        stale_ms: int = 900_000,
    ) -> None:
        self._own = own
        self._view = view
        self._out = out
        self._borrowers = list(borrowers)
        self._ready = ready
        self._leads = leads
        self._stale_ms = stale_ms
        self._turned = False
        self._quiet: dict[str, Any] = {}
        """By node what was seen when nothing was to be written: the same again asks for nothing."""
        self._begun = 0
        self._name = own
        self._written: dict[str, int] = {}
        self._known: set[str] = set()
        self._asked: dict[int, tuple[int, float]] = {}
        """By partition the epoch that we asked for, and when."""
        self._parts: dict[str, dict[str, Desired]] = {one.system.name: {} for one in borrowers}

    async def run(self) -> None:
        """Until cancelled. Raises LedgerTaken."""
        await self._out.start()
        try:
            while True:
                began_s = time.monotonic()
                try:
                    await self.turn()
                except KafkaError as error:
                    log.warning("ledger: %r; reigning anew", error)
                    self._begin()
                    await asyncio.sleep(1.0)
                # Of thousands of nodes a turn takes long; the bridge has more to do than this.
                await asyncio.sleep(max(TURN_S, (time.monotonic() - began_s) * REST))
        finally:
            await self._out.stop()

    @property
    def turned(self) -> bool:
        """Whether it is known who shares what; before, what is shown stands."""
        return self._turned

    def desired(self, system: str) -> Mapping[str, Desired]:
        """What a sink that follows capacity should show; of shared nodes its system's part only."""
        if not self._turned:
            return {}  # who shares what is not known yet: what is shown stands
        parts = self._parts.get(system)
        return {**self._view.desired, **parts} if parts else self._view.desired

    def shared(self, system: str) -> Collection[str]:
        """Nodes of which the system has a part only."""
        return self._parts[system].keys()

    def lent(self, system: str) -> Mapping[str, Amount]:
        """What is held on each node; of shared nodes by this system alone.

        Nothing held is said of nodes that were looked at; of others nothing is known.
        """
        parts = self._parts.get(system) or {}
        return {
            **dict.fromkeys(self._known, NOTHING),
            **self._view.lent,
            **{node: self._view.book.of(node).holds(system) for node in parts},
        }

    @property
    def reigns(self) -> bool:
        """Whether this bridge answers in every partition, and may tell what it answered."""
        partitions = range(self._out.partitions)
        leads = self._leads is None or self._leads()
        return leads and bool(partitions) and all(self._reigns(one) for one in partitions)

    async def turn(self) -> None:
        """One look at everything, and what it asks to be written."""
        if not self._ready() or (self._leads is not None and not self._leads()):
            self._turned = False
            self._known.clear()
            self._quiet.clear()
            return
        await self._take_over()
        now_ms = self._view.now_ms(mono_ms())
        places = {one.system.name: one.nodes for one in self._borrowers}
        nodes = sorted(set(self._view.book.nodes).union(*places.values()))
        for first in range(0, len(nodes), AT_ONCE):
            records: Records = []
            for node in nodes[first : first + AT_ONCE]:
                partition = partition_of(node.encode(), self._out.partitions)
                if self._reigns(partition) and self._read_back(node, partition):
                    here = [name for name, place in places.items() if node in place]
                    records += self._of_node(node, partition, here, now_ms)
            self._written |= await self._out.write(records)
            await asyncio.sleep(0)
        self._known.intersection_update(nodes)
        self._turned = self._turned or self.reigns
        if len(self._quiet) > 2 * len(nodes):
            self._quiet.clear()

    def _begin(self) -> None:
        """Under a new name, so that what of the old one may still reach the log is void there."""
        self._begun += 1
        self._name = f"{self._own}.{self._begun}"
        self._asked.clear()
        self._written.clear()

    def _read_back(self, node: str, partition: int) -> bool:
        """Whether all that was written of it has been folded: before, nothing more is decided."""
        offset = self._written.get(node, -1)
        if self._view.book.at.get(partition, -1) < offset:
            return False
        self._written.pop(node, None)
        return True

    def _reigns(self, partition: int) -> bool:
        reign = self._view.book.reigns.get(partition)
        return reign is not None and reign.bridge == self._name

    async def _take_over(self) -> None:
        """Ask for every partition where another reigns; the log says who got it."""
        now_s = time.monotonic()
        asking = []
        for partition in range(self._out.partitions):
            if self._reigns(partition):
                continue
            epoch = self._view.book.epoch(partition)
            asked, asked_s = self._asked.get(partition, (NEVER, 0.0))
            if self._leads is None and epoch >= asked:
                raise LedgerTaken(
                    f"bridge {self._view.book.reigns[partition].bridge} took the ledger over; "
                    "run one bridge, or several that elect one by Lease"
                )
            if epoch >= asked or asked == NEVER or now_s - asked_s >= REIGN_AGAIN_S:
                self._asked[partition] = (epoch + 1, now_s)
                asking.append(self._out.reign(partition, LedgerReign(epoch + 1, self._name)))
        await asyncio.gather(*asking)

    def _of_node(self, node: str, partition: int, here: Sequence[str], now_ms: int) -> Records:
        """Everything that is to be written of one node; what is to be shown is told on the way."""
        log_ = self._view.book
        book, read_ms = log_.of(node), mono_ms()
        seen = {one.system.name: one.seen(node, read_ms) for one in self._borrowers}
        want = self._view.desired.get(node)
        held: dict[str, Held] = {}
        for one in self._borrowers:
            held.update(one.held_on(node))
        lendable = self._lendable(want, now_ms)
        displaced = [slot for name, slot in log_.displaced if name == node]
        epoch = log_.epoch(partition)
        given = (book.revision, epoch, want, lendable, seen, held, here)
        if self._quiet.get(node) == given:
            return []
        systems = [one.system for one in self._borrowers]
        turn = of_node(
            Node(node, book, epoch, lendable, systems, seen, held, displaced, here), now_ms
        )
        for one in self._borrowers:
            parts, amount = self._parts[one.system.name], turn.tell.get(one.system.name)
            if amount is None or want is None:
                parts.pop(node, None)
            else:
                parts[node] = replace(want, amount=amount)
                one.wants(node, amount)
        if not turn.records and all(one.sure for one in seen.values()):
            self._known.add(node)  # the log says what its systems hold
        if turn.records or displaced or book.claims:  # claims run out by time alone
            self._quiet.pop(node, None)
        else:
            self._quiet[node] = given
        return turn.records

    def _lendable(self, want: Desired | None, now_ms: int) -> Lendable | None:
        """What may be lent; nothing new on old figures."""
        if want is None:
            return None
        if want.removed:
            return Lendable(NOTHING, new_work=False)
        fresh = now_ms - want.seen_ms < self._stale_ms
        return Lendable(want.amount, want.new_work and fresh)
