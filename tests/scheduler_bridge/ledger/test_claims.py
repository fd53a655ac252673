"""Claims: in the order of the log, absolute, by id; refusals with a reason; the dead run out."""

from __future__ import annotations

import pytest

from scheduler_bridge.ledger.book import EXPIRY_SLACK_MS, Book, NodeBook, Slot, amount_of
from scheduler_bridge.ledger.claims import LEFT_OVER_MS, Lendable, answers, left_over
from scheduler_bridge.reconcile import Amount
from schemas import codec, ledger
from schemas.errors import BadRecord
from schemas.ledger_records import LedgerClaim, LedgerGrant, LedgerReign
from schemas.records import LedgerEntry

NODE = "n"
ROOM = Lendable(Amount(8000, 8000), new_work=True)
NOW_MS = 1_000_000


class Log:
    """A book that is folded record by record."""

    def __init__(self) -> None:
        self.book = Book()
        self.offset = -1

    def say(self, key: bytes, record: object) -> str:
        self.offset += 1
        raw = None if record is None else codec.encode(record)
        return self.book.fold(key, raw, 0, self.offset, NOW_MS)

    def claim(self, name: str, cpu: int, ttl_ms: int = 60_000, who: str = "slurm") -> None:
        record = LedgerClaim(NODE, who, name, ttl_ms, cpu, cpu)
        self.say(ledger.claim_key(NODE, who, name), record)

    def answer(
        self, lendable: Lendable | None = ROOM, now_ms: int = NOW_MS
    ) -> dict[str, tuple[str, int]]:
        """Reason and cpu by claim; the answers are folded."""
        found = answers(self.node, NODE, lendable, now_ms, 1).said
        for one in found:
            self.say(ledger.grant_key(one.node, one.scheduler, one.claim), one)
        return {one.claim: (one.reason, one.cpu_milli) for one in found}

    @property
    def node(self) -> NodeBook:
        return self.book.of(NODE)


def test_first_come_first_served_and_each_is_answered_once() -> None:
    log = Log()
    for name, cpu in (("a", 5000), ("b", 4000), ("c", 3000)):
        log.claim(name, cpu)
    assert log.answer() == {"a": ("", 5000), "b": ("no_room", 0), "c": ("", 3000)}
    assert log.answer() == {}


def test_an_id_is_absolute_less_gives_back_more_is_asked_for_anew() -> None:
    log = Log()
    log.claim("a", 5000)
    log.claim("b", 2000)
    log.answer()
    log.claim("a", 7000)
    assert log.answer() == {"a": ("no_room", 5000)}
    assert log.node.granted("slurm", NOW_MS).cpu_milli == 7000
    log.claim("b", 500)
    assert log.answer() == {"b": ("", 500)}
    log.claim("a", 7000)
    assert log.answer() == {"a": ("", 7000)}
    log.say(ledger.claim_key(NODE, "slurm", "a"), None)
    assert log.node.granted("slurm", NOW_MS).cpu_milli == 500


def test_the_dead_run_out_and_their_keys_leave_the_topic_later() -> None:
    log = Log()
    log.claim("a", 8000, ttl_ms=1_000)
    log.answer()
    late = NOW_MS + 1_000 + EXPIRY_SLACK_MS
    assert log.node.granted("slurm", late - 1).cpu_milli == 8000
    assert log.node.granted("slurm", late).cpu_milli == 0
    log.claim("b", 8000)
    assert log.answer(now_ms=late) == {"b": ("", 8000)}
    assert left_over(log.node, NODE, late) == []
    gone = left_over(log.node, NODE, NOW_MS + 1_000 + LEFT_OVER_MS)
    assert gone == [b"n/slurm/a", b"n/slurm/a/answer"]
    for key in gone:
        log.say(key, None)
    assert set(log.node.claims) == set(log.node.grants) == {Slot("slurm", "b")}


def test_an_answer_that_comes_after_the_claim_was_given_back_is_none() -> None:
    log = Log()
    log.claim("a", 5000)
    (late,) = answers(log.node, NODE, ROOM, NOW_MS, 1).said
    log.say(ledger.claim_key(NODE, "slurm", "a"), None)
    log.say(ledger.grant_key(NODE, "slurm", "a"), late)
    assert log.node.counted(NOW_MS).cpu_milli == 0
    assert left_over(log.node, NODE, NOW_MS) == [b"n/slurm/a/answer"]
    log.claim("a", 1000)
    assert log.node.counted(NOW_MS).cpu_milli == 0
    assert log.answer() == {"a": ("", 1000)}
    assert log.node.counted(NOW_MS).cpu_milli == 1000


@pytest.mark.parametrize(
    ("lendable", "ttl_ms", "now_ms", "reason"),
    [
        (None, 60_000, NOW_MS, "no_capacity"),
        (Lendable(ROOM.amount, new_work=False), 60_000, NOW_MS, "no_new_work"),
        (ROOM, 60_000, NOW_MS + 60_000, "expired"),
        (ROOM, 999, NOW_MS, "bad_ttl"),
        (ROOM, 3_600_001, NOW_MS, "bad_ttl"),
    ],
)
def test_a_refusal_says_why(
    lendable: Lendable | None, ttl_ms: int, now_ms: int, reason: str
) -> None:
    log = Log()
    log.claim("a", 1000, ttl_ms)
    assert log.answer(lendable, now_ms) == {"a": (reason, 0)}


def test_a_renewal_is_granted_whatever_has_become_of_the_capacity() -> None:
    log = Log()
    log.claim("a", 5000)
    log.answer()
    log.claim("a", 5000)
    assert log.answer(Lendable(Amount(1000, 1000), new_work=False)) == {"a": ("", 5000)}


def test_what_a_scheduler_holds_counts_where_it_is_more_than_granted() -> None:
    log = Log()
    log.say(b"n/yarn", LedgerEntry(NODE, "yarn", 6000, 100))
    log.claim("a", 3000)
    assert log.answer() == {"a": ("no_room", 0)}
    log.say(b"n/yarn", LedgerEntry(NODE, "yarn", 5000, 100))
    log.claim("a", 3000)
    assert log.answer() == {"a": ("", 3000)}
    log.say(b"n/slurm", LedgerEntry(NODE, "slurm", 3000, 100))
    assert log.node.counted(NOW_MS).cpu_milli == 8000


def test_answers_of_an_earlier_reign_are_void_and_remembered() -> None:
    log = Log()
    log.say(ledger.REIGN_KEY, LedgerReign(2, "new"))
    log.claim("a", 1000)
    stray = LedgerGrant(NODE, "slurm", "a", True, "", 1, cpu_milli=1000)
    assert log.say(ledger.grant_key(NODE, "slurm", "a"), stray) == "old"
    assert log.node.grants == {}
    assert log.book.displaced == {(NODE, Slot("slurm", "a"))}
    assert log.say(ledger.REIGN_KEY, LedgerReign(2, "same")) == "old"
    assert log.book.reigns[0].bridge == "new"


def test_a_tombstone_of_an_answer_that_holds_something_is_void() -> None:
    log = Log()
    log.claim("a", 1000)
    log.answer()
    assert log.say(ledger.grant_key(NODE, "slurm", "a"), None) == "old"
    assert amount_of(log.node.grants[Slot("slurm", "a")]).cpu_milli == 1000
    assert log.book.displaced


@pytest.mark.parametrize("cpu", [-1, 2**63])
def test_figures_out_of_range_change_nothing(cpu: int) -> None:
    log = Log()
    log.claim("a", 1000)
    before = dict(log.node.claims)
    with pytest.raises(BadRecord):
        log.claim("a", cpu)
    assert log.node.claims == before
