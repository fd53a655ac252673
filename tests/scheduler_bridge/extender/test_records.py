"""Records into the fleet: in any order, twice, bad ones, and a policy that changes on the way."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scheduler_bridge.ledger.book import EXPIRY_SLACK_MS
from schemas import codec
from schemas.errors import BadRecord
from schemas.ledger_records import LedgerClaim, LedgerGrant, LedgerReign
from schemas.records import Capacity, LedgerEntry, PolicyRecord, Signal
from tests.scheduler_bridge.extender.world import (
    NOW_MS,
    World,
    batch,
    capacity,
    cause,
    reservation,
    row,
)


def taken_out(world: World, column: str, node: str = "n") -> list[int]:
    found: list[int] = world.fleet.take(column, world.fleet.rows_of([node]))[0].tolist()
    return found


def policy_record(text: str) -> bytes:
    return codec.encode(PolicyRecord("default", 1, "digest", text))


def test_older_reports_and_offers_never_win() -> None:
    world = World()
    newer, older = reservation("n", 2_000), reservation("n", 9_000, at_ms=NOW_MS - 1)
    assert world.hear(newer, older, newer) == ["new", "old", "new"]
    assert taken_out(world, "usage")[0] == 2_000
    assert world.hear(capacity("n", 5, offset=2), capacity("n", 7, offset=1)) == ["new", "old"]
    assert taken_out(world, "offered")[0] == 5


def test_each_scheduler_counts_once_and_ours_not_at_all() -> None:
    world = World()
    for entry in (
        LedgerEntry("n", "yarn", 100, 1), LedgerEntry("n", "yarn", 300, 1),
        LedgerEntry("n", "other", 50, 1, mid_cpu_milli=7), LedgerEntry("n", "kubernetes", 999, 9),
    ):  # fmt: skip
        world.hear(entry)
    assert taken_out(world, "others") == [350, 2, 7, 0]
    world.records.fold("ledger", b"n/yarn", None, NOW_MS)
    assert taken_out(world, "others") == [50, 1, 7, 0]


def test_a_policy_holds_from_when_it_came_for_all_that_stands() -> None:
    world = World()
    world.fleet.put(row("p", asks=batch(1000), node="n"), NOW_MS, seen=True)
    world.fleet.refresh()
    assert taken_out(world, "pending")[0] == 850
    text = "load_aware: {cpu_factor_percent: 50}"
    assert world.records.fold("policies", b"default", policy_record(text), NOW_MS) == "new"
    assert world.records.fold("policies", b"default", policy_record(text), NOW_MS) == "old"
    assert world.records.fold("policies", b"other", b"{", NOW_MS) == "old"
    assert world.records.fold("policies", b"default", None, NOW_MS) == "old"
    world.fleet.refresh()
    assert taken_out(world, "pending")[0] == 500


def test_a_canary_places_by_what_holds_elsewhere() -> None:
    world = World()
    raw = codec.encode(
        PolicyRecord(
            "default", 1, "digest", "load_aware: {cpu_percent: 10}", canary={"pool": "a"},
            elsewhere="load_aware: {cpu_percent: 40}",
        )
    )  # fmt: skip
    assert world.records.fold("policies", b"default", raw, NOW_MS) == "new"
    assert world.fleet.policy.load_aware.cpu_percent == 40


@pytest.mark.parametrize(
    ("topic", "key", "raw", "reason"),
    [
        ("reservations", b"n", lambda: b"{", "broken_json"),
        ("reservations", b"other", lambda: codec.encode(reservation("n", 1)), "key_mismatch"),
        ("signals", None, lambda: codec.encode(Signal("n", cause(NOW_MS), True)), "key_mismatch"),
        ("capacity", b"n", lambda: codec.encode(capacity("n", -1)), "wrong_type"),
        ("ledger", b"n/x", lambda: codec.encode(LedgerEntry("n", "y", 1, 1)), "key_mismatch"),
        ("policies", b"default", lambda: policy_record("nonsense: 1"), "wrong_type"),
    ],
)
def test_r8_a_bad_record_says_why_and_changes_nothing(
    topic: str, key: bytes | None, raw: Callable[[], bytes], reason: str
) -> None:
    world = World()
    world.join("n")
    with pytest.raises(BadRecord) as error:
        world.records.fold(topic, key, raw(), NOW_MS)
    assert error.value.reason == reason
    assert list(world.fleet.names) == ["n"]
    assert taken_out(world, "offered") == [0, 0, 0, 0]


def test_an_offer_that_came_again_after_it_was_taken_back() -> None:
    world = World()
    offers: list[Capacity] = [capacity("n", 100, offset=1), capacity("n", 200, offset=2)]
    world.hear(offers[0])
    world.records.fold("capacity", b"n", None, NOW_MS)
    assert world.fleet.take("offered_ms", world.fleet.rows_of(["n"]))[0] == -1
    world.hear(offers[1])
    assert taken_out(world, "offered")[0] == 200


def grant(granted_milli: int, until_ms: int) -> LedgerGrant:
    return LedgerGrant(
        "n", "yarn", "c", True, "granted", 0, answers=1, until_ms=until_ms, cpu_milli=granted_milli
    )


def test_what_another_was_granted_counts_until_it_runs_out() -> None:
    world = World()
    claim = LedgerClaim("n", "yarn", "c", 60_000, 700)
    for key, record in ((b"n/yarn/c", claim), (b"n/yarn/c/answer", grant(700, NOW_MS + 60_000))):
        world.records.fold("ledger", key, codec.encode(record), NOW_MS)
    world.hear(LedgerEntry("n", "yarn", 200, 1))
    assert taken_out(world, "others") == [700, 1, 0, 0], "the larger of held and granted"
    world.records.let_pass(NOW_MS + 50_000)
    assert taken_out(world, "others")[0] == 700
    world.records.let_pass(NOW_MS + 60_000 + EXPIRY_SLACK_MS)
    assert taken_out(world, "others")[0] == 200
    assert (
        world.records.fold("ledger", b"~reign", codec.encode(LedgerReign(1, "b")), NOW_MS) == "new"
    )
    assert sorted(world.fleet.names) == ["n"]


def test_nodes_that_are_gone_are_forgotten_and_their_rows_used_again() -> None:
    world = World()
    world.join("kept", "gone")
    world.hear(reservation("held", 1), reservation("gone", 1), reservation("young", 1))
    world.hear(reservation("young", 1, at_ms=NOW_MS + 2))
    world.fleet.put(row("p", node="held"), NOW_MS, seen=True)
    world.fleet.refresh()
    row_of_gone = world.fleet.rows_of(["gone"])[0]
    world.fleet.collect({"kept"}, NOW_MS + 1)
    assert sorted(world.fleet.names) == ["held", "kept", "young"]
    world.hear(reservation("new", 5))
    assert world.fleet.rows_of(["new"])[0] == row_of_gone
    assert taken_out(world, "allocatable", "new") == [0, 0]
    assert taken_out(world, "usage", "new")[0] == 5
