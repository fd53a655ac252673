"""The public windowed table without a broker: rows, reading of sources, pruning."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import faust
import pytest

from schemas import codec
from schemas.errors import BadRecord
from schemas.records import Capacity, Cause, NodeMinute, Reservation, Signal
from streams.tables import AHEAD_MS, KEEP_MS, MINUTE_MS, MinuteTable, fold, read_source

EMPTY = NodeMinute("n1", 0)


def cause(offset: int, incarnation: int = 1, log_ms: int = 1_000) -> Cause:
    return Cause(incarnation, 0, offset, log_ms, "", 1)


def reservation(offset: int, usage: int | None) -> Reservation:
    lines = {"limit": 1} if usage is None else {"usage": usage, "short": usage + 1, "long": 9}
    return Reservation("n1", cause(offset), 0, lines, {"usage": 7})


def folded(row: NodeMinute, topic: str, said: Any) -> NodeMinute:
    after = fold(row, topic, said)
    assert after is not None
    return after


def test_maxima_of_lines_and_absent_is_not_zero() -> None:
    row = folded(EMPTY, "reservations", reservation(1, None))
    assert (row.reservations, row.cpu_usage_max_milli, row.memory_usage_max_bytes) == (1, None, 7)
    row = folded(row, "reservations", reservation(2, 50))
    row = folded(row, "reservations", reservation(3, 40))
    assert (row.cpu_usage_max_milli, row.cpu_short_max_milli, row.cpu_long_max_milli) == (50, 51, 9)
    assert row.reservations == 3


def test_scores_and_ill_signals() -> None:
    well = Signal("n1", cause(1), ill=False, pressure_score_permille=[None, None])
    row = folded(EMPTY, "signals", well)
    assert (row.signals, row.ill_signals, row.score_max_permille) == (1, 0, None)
    ill = replace(well, cause=cause(2), ill=True, wait_score_permille=[-5, 7_000, None])
    row = folded(row, "signals", ill)
    assert (row.signals, row.ill_signals, row.score_max_permille) == (2, 1, 7_000)


def test_the_last_capacity_stands() -> None:
    row = folded(EMPTY, "capacity", Capacity("n1", cause(1), 500, 5, "rose"))
    last = Capacity("n1", cause(2), 0, 4, "fell", False, mid_cpu_milli=7, mid_memory_bytes=8)
    row = folded(row, "capacity", last)
    assert (row.capacities, row.batch_cpu_milli, row.batch_memory_bytes) == (2, 0, 4)
    assert (row.new_work, row.mid_cpu_milli, row.mid_memory_bytes) == (False, 7, 8)


def test_r4_a_record_counts_once_and_an_older_one_not_at_all() -> None:
    row = folded(EMPTY, "reservations", reservation(5, 50))
    assert fold(row, "reservations", reservation(5, 50)) is None
    assert fold(row, "reservations", reservation(4, 90)) is None
    assert folded(row, "signals", Signal("n1", cause(5), ill=False)).signals == 1
    newer = replace(reservation(0, 60), cause=cause(0, incarnation=2))
    assert folded(row, "reservations", newer).cpu_usage_max_milli == 60


def test_rows_survive_the_wire() -> None:
    row = folded(EMPTY, "reservations", reservation(5, 50))
    assert codec.decode(NodeMinute, codec.encode(row)) == row


def test_sources_are_checked() -> None:
    good = Capacity("n1", cause(1, log_ms=10_000), 1, 1, "")
    raw = codec.encode(good)
    assert read_source("capacity", b"n1", raw, codec.JSON_HEADERS, 10_000) == good
    cases: list[tuple[bytes, bytes, Any, int, str]] = [
        (b"n2", raw, codec.JSON_HEADERS, 10_000, "key_mismatch"),
        (b"n1", raw, None, 10_000, "unknown_encoding"),
        (b"n1", b"{", codec.JSON_HEADERS, 10_000, "broken_json"),
        (b"n1", b"{}", codec.JSON_HEADERS, 10_000, "missing_field"),
        (b"n1", raw, codec.JSON_HEADERS, 10_000 - AHEAD_MS - 1, "future_clock"),
    ]
    for key, value, headers, log_ms, reason in cases:
        with pytest.raises(BadRecord) as refused:
            read_source("capacity", key, value, headers, log_ms)
        assert refused.value.reason == reason


KEEP = KEEP_MS // MINUTE_MS
Rows = set[tuple[str, int]]


async def restored(rows: Rows, homes: dict[str, int]) -> MinuteTable:
    """A table as recovery leaves it: rows (node, minute) that no stream of this process wrote."""
    app = faust.App("t", broker="kafka://127.0.0.1:1", store="memory://", autodiscover=False)
    table = MinuteTable(app)
    store = table._windows.table.data
    for node, minute in rows:
        begin = minute * MINUTE_MS / 1000
        key = (node, (begin, begin + MINUTE_MS / 1000 - 0.1))
        store.data[key] = codec.encode(NodeMinute(node, minute * MINUTE_MS))
        store._key_partition[key] = homes[node]
    return table


def rows_of(table: MinuteTable) -> Rows:
    windows = table._windows.table.data
    return {(node, round(start * 1000) // MINUTE_MS) for node, (start, _) in windows}


async def test_r12_restored_windows_are_pruned_by_event_time_whatever_the_clock_says() -> None:
    """Minutes of 1970: an expiry by the wall clock would drop all, one by booking none."""
    rows = {("n1", minute) for minute in range(10)} | {("n2", 5), ("n2", 5 + KEEP)}
    table = await restored(rows, {"n1": 0, "n2": 0})
    assert table.prune() == 5  # minutes 0 to 4 of n1; minute 5 ended just less than KEEP_MS ago
    left = {("n1", minute) for minute in range(5, 10)} | {("n2", 5), ("n2", 5 + KEEP)}
    assert rows_of(table) == left
    assert table.prune() == 0
    assert len(table._windows.table.data._key_partition) == len(table)


async def test_a_partition_that_lags_keeps_its_rows() -> None:
    rows = {("n1", 0), ("n2", 500), ("n2", 500 - KEEP - 1)}
    table = await restored(rows, {"n1": 0, "n2": 1})
    assert table.prune() == 1
    assert rows_of(table) == {("n1", 0), ("n2", 500)}


async def test_an_empty_table_has_nothing_to_prune() -> None:
    table = await restored(set(), {})
    assert (table.prune(), len(table)) == (0, 0)


async def test_a_record_older_than_what_its_partition_keeps_is_late() -> None:
    table = await restored({("n1", 1_000)}, {"n1": 0})
    table.prune()
    said = Capacity("n1", cause(1, log_ms=(1_000 - KEEP - 1) * MINUTE_MS), 1, 1, "")
    assert table.count("capacity", said, 0) == "late"
    assert rows_of(table) == {("n1", 1_000)}
