"""The keeper on a real topic, its reader in the test's hand: what it waits for before it writes."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from scheduler_bridge.ledger.amounts import NOTHING
from scheduler_bridge.ledger.book import SHARE, Held, Slot, amount_of
from scheduler_bridge.ledger.keeper import Keeper, LedgerTaken
from scheduler_bridge.ledger.log import LedgerLog, partition_of
from scheduler_bridge.ledger.shares import Seen, System
from scheduler_bridge.reconcile import Amount
from scheduler_bridge.view import View
from schemas import codec
from schemas.ledger_records import LedgerReign
from streams.dev_broker import DevBroker
from tests.scheduler_bridge.ledger.checker import check
from tests.scheduler_bridge.ledger.stage import PARTITIONS, Topics
from tests.scheduler_bridge.test_bridge_broker import capacity, make_topics

NODE = "n"
LOG_MS = 1_790_000_000_000
HOME = partition_of(NODE.encode(), PARTITIONS)


@dataclass
class Borrower:
    """A system that shows what it is told at once."""

    system: System
    waits: Amount = NOTHING
    shows: Amount = NOTHING
    nodes: frozenset[str] = frozenset({NODE})
    told: list[Amount] = field(default_factory=list)
    third: dict[str, Held] = field(default_factory=dict)

    def held_on(self, node: str) -> dict[str, Held]:
        assert node == NODE
        return {self.system.name: Held(NOTHING), **self.third}

    def seen(self, node: str, mono_ms: int) -> Seen:
        assert node == NODE
        assert mono_ms > 0
        return Seen(self.shows, NOTHING, self.waits)

    def wants(self, node: str, amount: Amount) -> None:
        assert node == NODE
        self.shows = amount
        self.told.append(amount)


@dataclass
class Desk:
    keeper: Keeper
    view: View
    topics: Topics
    out: LedgerLog
    kube: Borrower
    yarn: Borrower

    async def read(self) -> None:
        """Fold all that is on the topic and was not folded yet."""
        for said in await self.topics.ledger():
            if said.offset > self.view.book.at.get(said.partition, -1):
                self.view.fold_ledger(said.key, said.raw, said.partition, said.offset, said.log_ms)

    async def reign(self) -> None:
        await self.keeper.turn()
        await self.read()
        assert self.keeper.reigns

    def share(self, name: str) -> Amount:
        grant = self.view.book.of(NODE).grants.get(Slot(name, SHARE))
        return amount_of(grant) if grant is not None else NOTHING


@pytest.fixture
async def desk(broker: DevBroker, prefix: str) -> AsyncIterator[Desk]:
    await make_topics(broker.bootstrap, prefix)
    view, out = View(), LedgerLog(broker.bootstrap, prefix)
    view.saw(LOG_MS, time.monotonic_ns() // 1_000_000)
    view.fold_capacity(NODE.encode(), codec.encode(capacity(NODE, 1, 8000)), LOG_MS)
    kube = Borrower(System("kubernetes"))
    yarn = Borrower(System("yarn", led=True))
    keeper = Keeper("me", view, out, [kube, yarn], lambda: True)
    await out.start()
    async with Topics(broker.bootstrap, prefix) as topics:
        yield Desk(keeper, view, topics, out, kube, yarn)
    await out.stop()


async def test_nothing_is_decided_before_the_last_decision_was_read_back(desk: Desk) -> None:
    assert desk.keeper.desired("kubernetes") == {}
    await desk.reign()
    await desk.keeper.turn()
    written = len(await desk.topics.ledger())
    desk.kube.waits = Amount(8000, 8 << 20)  # another answer would be right now
    await desk.keeper.turn()
    assert len(await desk.topics.ledger()) == written
    assert desk.share("kubernetes") == NOTHING
    for _ in range(8):
        await desk.read()
        await desk.keeper.turn()
    assert desk.share("kubernetes").cpu_milli == 8000
    assert desk.keeper.desired("kubernetes")[NODE].amount.cpu_milli == 8000
    verdict = check(await desk.topics.ledger())
    assert (verdict.over, verdict.most_cpu_milli) == ([], {NODE: 8000})


async def test_nothing_is_told_that_was_not_read_back(desk: Desk) -> None:
    await desk.reign()
    await desk.keeper.turn()
    await desk.keeper.turn()
    assert set(desk.yarn.told) <= {NOTHING}
    await desk.read()
    await desk.keeper.turn()
    assert desk.yarn.shows.cpu_milli == 4000


async def test_after_another_reigns_it_ends_and_writes_no_more(desk: Desk) -> None:
    await desk.reign()
    await desk.keeper.turn()
    before = len(await desk.topics.ledger())
    await desk.out.reign(HOME, LedgerReign(desk.view.book.epoch(HOME) + 1, "other"))
    await desk.read()
    assert not desk.keeper.reigns
    with pytest.raises(LedgerTaken, match="other"):
        await desk.keeper.turn()
    assert len(await desk.topics.ledger()) == before + 1


async def test_of_two_that_ask_at_once_the_first_on_the_log_reigns(desk: Desk) -> None:
    await desk.out.reign(HOME, LedgerReign(1, "first"))
    await desk.keeper.turn()
    await desk.read()
    assert desk.view.book.reigns[HOME] == LedgerReign(1, "first")
    assert not desk.keeper.reigns
    with pytest.raises(LedgerTaken, match="first"):
        await desk.keeper.turn()


async def test_what_is_held_counts_before_the_log_says_it(desk: Desk) -> None:
    desk.kube.third = {"spark": Held(Amount(3000, 0))}
    await desk.reign()
    for _ in range(6):
        await desk.keeper.turn()
        await desk.read()
    shares = desk.share("kubernetes").cpu_milli + desk.share("yarn").cpu_milli
    assert shares == 5000
    assert check(await desk.topics.ledger()).over == []
