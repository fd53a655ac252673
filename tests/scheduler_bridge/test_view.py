"""The fold of capacity and ledger: order by cause, sums over schedulers, refusals, log time."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_bridge.reconcile import Amount
from scheduler_bridge.view import View
from schemas import codec
from schemas.errors import BadRecord
from schemas.ledger import entry_key
from schemas.records import Capacity, Cause, LedgerEntry


def capacity(offset: int, cpu: int, incarnation: int = 1, node: str = "n") -> bytes:
    cause = Cause(incarnation, 0, offset, 1000 + offset, "abc", 1)
    return codec.encode(Capacity(node, cause, cpu, 1 << 30, "usage"))


def test_older_and_equal_causes_never_win() -> None:
    view = View()
    assert view.fold_capacity(b"n", capacity(5, 500), 1) == "new"
    assert view.fold_capacity(b"n", capacity(4, 400), 2) == "old"
    assert view.fold_capacity(b"n", capacity(5, 999), 3) == "old"
    assert view.desired["n"].amount.cpu_milli == 500
    assert view.desired["n"].seen_ms == 1
    assert view.fold_capacity(b"n", capacity(0, 700, incarnation=2), 4) == "new"
    assert view.desired["n"].amount.cpu_milli == 700


@given(st.permutations([(1, 3), (1, 9), (2, 1), (1, 4), (2, 0)]))
def test_any_order_of_arrival_ends_at_the_newest_cause(order: list[tuple[int, int]]) -> None:
    view = View()
    seen = []
    for incarnation, offset in order:
        view.fold_capacity(b"n", capacity(offset, 10 * offset, incarnation), 1)
        seen.append(view.desired["n"].order)
    assert seen == sorted(seen)
    assert seen[-1] == (2, 1)


def test_lent_is_the_sum_over_schedulers_and_absolute() -> None:
    view = View()
    for scheduler, cpu in (("kube", 1000), ("yarn", 500), ("kube", 300)):
        entry = LedgerEntry("n", scheduler, cpu, cpu << 20)
        view.fold_ledger(entry_key("n", scheduler), codec.encode(entry))
    assert view.lent["n"] == Amount(800, 800 << 20)
    view.fold_ledger(b"n/kube", None)
    assert view.lent["n"] == Amount(500, 500 << 20)
    view.fold_ledger(b"n/yarn", None)
    assert view.lent == {}


def test_a_key_of_before_counts_and_its_tombstone_gives_all_back() -> None:
    view = View()
    view.fold_ledger(b"n", codec.encode(LedgerEntry("n", "kube", 1000, 1)))
    view.fold_ledger(b"n/yarn", codec.encode(LedgerEntry("n", "yarn", 500, 1)))
    view.fold_ledger(b"n/kube", codec.encode(LedgerEntry("n", "kube", 200, 1)))
    assert view.lent["n"] == Amount(700, 2)
    view.fold_ledger(b"n", None)
    assert view.lent == {}


def test_tombstone_marks_the_capacity_removed() -> None:
    view = View()
    assert view.fold_capacity(b"n", None, 1) == "old"
    view.fold_capacity(b"n", capacity(5, 500), 1)
    assert view.fold_capacity(b"n", None, 2) == "removed"
    assert view.desired["n"].removed


def _with(**changes: Any) -> bytes:
    return orjson.dumps({**orjson.loads(capacity(5, 500)), **changes})


@pytest.mark.parametrize(
    ("key", "raw", "reason"),
    [
        (b"n", b"{", "broken_json"),
        (b"n", b'{"node": "n"}', "missing_field"),
        (b"n", capacity(5, 1).replace(b"1073741824", b"NaN"), "broken_json"),
        (b"n", _with(batch_cpu_milli=1e308), "wrong_type"),
        (b"n", _with(batch_cpu_milli=-1), "wrong_type"),
        (b"n", _with(batch_cpu_milli=2**63), "wrong_type"),
        (b"n", _with(mid_cpu_milli=-1), "wrong_type"),
        (b"m", capacity(5, 1), "key_mismatch"),
        (None, capacity(5, 1), "key_mismatch"),
        (b"\xff", None, "key_mismatch"),
    ],
)
def test_a_bad_record_changes_nothing(key: bytes | None, raw: bytes | None, reason: str) -> None:
    view = View()
    view.fold_capacity(b"n", capacity(1, 500), 1)
    before = dict(view.desired)
    with pytest.raises(BadRecord) as caught:
        view.fold_capacity(key, raw, 2)
    assert caught.value.reason == reason
    assert view.desired == before


def test_log_time_goes_on_in_silence_and_never_back() -> None:
    view = View()
    view.saw(1_000_000, 50)
    assert view.now_ms(50) == 1_000_000
    assert view.now_ms(60_050) == 1_060_000
    view.saw(1_000_500, 60_050)  # another partition lags behind
    assert view.now_ms(60_050) == 1_060_000
    view.saw(1_070_000, 60_051)
    assert view.now_ms(60_051) == 1_070_000
