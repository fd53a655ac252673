"""One node, two greedy systems and a claimant, with a log of its own: for tests of every order.

Each step is one event that may happen at any time: the bridge looks, writes some of what it wants
to write and dies; a system is told, or starts on all that it is shown; work ends; capacity changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from scheduler_bridge.ledger.amounts import NOTHING, larger, less, within
from scheduler_bridge.ledger.book import Book, Held
from scheduler_bridge.ledger.claims import Lendable
from scheduler_bridge.ledger.shares import Seen, System
from scheduler_bridge.ledger.turn import Node, Turn, of_node
from scheduler_bridge.reconcile import Amount
from schemas import codec, ledger
from schemas.ledger_records import LedgerClaim, LedgerReign
from tests.scheduler_bridge.ledger.checker import Said

NODE = "n"
EIGHT = Amount(8000, 8 << 20)
KUBE = System("kubernetes")
YARN = System("yarn", grain=Amount(1000, 1 << 20, 1, 1), led=True)
SYSTEMS = (KUBE, YARN)


@dataclass(slots=True)
class World:
    """``told``: what a system was told last and has not heard yet."""

    dice: Random
    lendable: Amount = EIGHT
    new_work: bool = True
    log: list[Said] = field(default_factory=list)
    book: Book = field(default_factory=Book)
    now_ms: int = 1_000_000
    shows: dict[str, Amount] = field(
        default_factory=lambda: dict.fromkeys(("kubernetes", "yarn"), NOTHING)
    )
    runs: dict[str, list[Amount]] = field(default_factory=lambda: {"kubernetes": [], "yarn": []})
    waits: dict[str, bool] = field(default_factory=lambda: {"kubernetes": True, "yarn": True})
    sure: bool = True
    reign: int = 0

    def append(self, key: bytes, record: object) -> None:
        self.now_ms += 1
        raw = None if record is None else codec.encode(record)
        said = Said(0, len(self.log), self.now_ms, key, raw)
        self.log.append(said)
        self.book.fold(key, raw, 0, said.offset, said.log_ms)

    def begin(self) -> None:
        """A bridge begins: it folds the log anew and reigns from here."""
        self.book = Book()
        for said in self.log:
            self.book.fold(said.key, said.raw, 0, said.offset, said.log_ms)
        self.reign = self.book.epoch(0) + 1
        self.append(ledger.REIGN_KEY, LedgerReign(self.reign, f"b{self.reign}"))

    def held(self, name: str) -> Amount:
        found = NOTHING
        for one in self.runs[name]:
            found = Amount(*(a + b for a, b in zip(found.each(), one.each(), strict=True)))
        return found

    def look(self) -> Turn:
        seen = {
            name: Seen(
                self.shows[name], self.held(name),
                Amount(2**40, 2**40) if self.waits[name] else NOTHING, sure=self.sure,
            )
            for name in self.shows
        }  # fmt: skip
        return of_node(
            Node(
                NODE, self.book.of(NODE), self.reign,
                Lendable(self.lendable, self.new_work), SYSTEMS, seen,
                {name: Held(self.held(name)) for name in self.shows},
                [slot for _, slot in self.book.displaced], frozenset(self.shows),
            ),
            self.now_ms,
        )  # fmt: skip

    def turn(self, writes: int | None = None) -> Turn:
        """Look, write (the first so many), tell both. Nobody is told by one that died writing."""
        found = self.look()
        for key, record in found.records[:writes]:
            self.append(key, record)
        if writes is None or writes >= len(found.records):
            self.tell(found)
        return found

    def tell(self, found: Turn) -> None:
        for name, amount in found.tell.items():
            least = self.held(name) if name == "yarn" else NOTHING
            self.shows[name] = larger(amount, least)

    def start(self, name: str, amount: Amount) -> bool:
        """A scheduler starts what fits into what it is shown."""
        now = self.held(name)
        fits = within(amount, less(self.shows[name], now)) and within(now, self.shows[name])
        if fits:
            self.runs[name].append(amount)
        return fits

    def end(self, name: str) -> None:
        if self.runs[name]:
            self.runs[name].pop(self.dice.randrange(len(self.runs[name])))

    def claim(self, claim: str, amount: Amount, ttl_ms: int = 60_000) -> None:
        record = LedgerClaim(NODE, "slurm", claim, ttl_ms, amount.cpu_milli, amount.memory_bytes)
        self.append(ledger.claim_key(NODE, "slurm", claim), record)

    def settle(self, turns: int = 30) -> None:
        """Turn until nothing moves any more."""
        for _ in range(turns):
            before = (len(self.log), dict(self.shows))
            self.turn()
            if (len(self.log), self.shows) == before:
                return
        raise AssertionError(f"still moving after {turns} turns: {self.turn()}")
