"""The SLO guard: no new work at once, called back by class, back after calm; a gap is neither."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.log import SideRecord, TickEntry
from agents.state import PartitionState
from agents.step import step
from schemas.records import Capacity, Inventory, Tick
from streams.explain.words import REASONS, RULES, Seen, sentence
from tests.agents.slo_kit import API, FAST, RULE, WEB, Guarded, decisions, node, sli
from tests.agents.worlds import INCARNATION, PARTITION, World, of, online, said

BAD, GOOD, BETWEEN = 150, 10, 95
"""Milliseconds; the objective is 100, calm ends at 90."""


def amounts(record: Capacity) -> tuple[int, int, int]:
    return record.cpu_terms["free"], record.batch_cpu_milli, record.mid_cpu_milli


def broken(fleet: Guarded | None = None) -> Guarded:
    """A node whose service has just left its objective."""
    fleet = fleet or Guarded()
    fleet.second(sli(p99_ms=BAD))
    fleet.second(sli(p99_ms=BAD))
    return fleet


def test_new_work_stops_at_the_tick_that_admits_the_last_round() -> None:
    fleet = Guarded()
    before = fleet.capacity()
    assert before.new_work
    fleet.second(sli(p99_ms=BAD))
    assert fleet.capacity() is before, "one round of two is none"
    fleet.second(sli(p99_ms=BAD))
    now = fleet.capacity()
    assert (now.new_work, now.reason, now.mid_reason) == (False, "slo", "slo")
    assert fleet.reasons() == ["slo_breach"]


def test_it_falls_free_batch_mid_and_no_command_names_an_online_pod() -> None:
    fleet = Guarded()
    first = amounts(fleet.capacity())
    assert min(first) > 0
    seen = [first]
    for _ in range(20):
        fleet.second(sli(p99_ms=BAD))
        now = amounts(fleet.capacity())
        if now != seen[-1]:
            seen.append(now)
    free, batch, mid = (list(column) for column in zip(*seen, strict=True))
    assert free[-1] == batch[-1] == mid[-1] == 0
    for column in (free, batch, mid):
        assert column == sorted(column, reverse=True)
    ends = [column.index(0) for column in (free, batch, mid)]
    assert ends == sorted(ends)
    assert len(set(ends)) == 3
    assert batch[ends[0]] == batch[0], "batch has all until nothing is left of free"
    assert mid[ends[1]] == mid[0], "and mid until nothing is left of batch"
    assert fleet.reasons() == ["slo_breach"] + ["slo_call_back"] * 5
    orders = [c for c in of(fleet.all, "commands") if c.pods]
    assert orders == []


def test_best_effort_work_is_suppressed_by_a_lower_allowance() -> None:
    fleet = Guarded()
    before = fleet.quota(fleet.nodes[0])
    fleet.seconds(20, sli(p99_ms=BAD))
    lowered = [c for c in of(fleet.all, "commands", "suppress") if c.reason == "slo"]
    allowed = [c.allow_milli for c in lowered]
    assert len(allowed) >= 4
    assert allowed == sorted(allowed, reverse=True)
    assert allowed[0] < before
    assert fleet.quota(fleet.nodes[0]) == 10, "the floor is kept"
    told = [d for d in of(fleet.all, "decisions", "suppress") if d.outcome == ("slo",)]
    assert all(d.columns["called_back"][0] < d.columns["allow"][0] for d in told)


def test_each_step_waits_and_wants_to_hear_it_again() -> None:
    fleet = broken()
    fleet.seconds(8)
    assert fleet.reasons() == ["slo_breach"], "no word since the step: no step"
    fleet.second(sli(p99_ms=BAD))
    assert fleet.reasons()[-1] == "slo_call_back"
    fleet.second(sli(p99_ms=BAD))
    assert fleet.reasons().count("slo_call_back") == 1, "the wait is not over"


def test_it_comes_back_step_by_step_after_calm_and_new_work_with_the_first() -> None:
    fleet = Guarded()
    whole = amounts(fleet.capacity())
    fleet.seconds(16, sli(p99_ms=BAD))
    lowest = fleet.capacity()
    seen = [amounts(lowest)]
    for second in range(40):
        out = fleet.second(sli(p99_ms=GOOD))
        back = any(reason in ("slo_return", "slo_over") for reason in fleet.reasons())
        assert fleet.capacity().new_work == back
        assert not (back and second < 3), "calm comes first"
        if decisions(out):
            seen.append(amounts(fleet.capacity()))
    assert fleet.reasons()[-6:] == ["slo_return"] * 5 + ["slo_over"]
    assert seen == sorted(seen, key=lambda one: one[::-1]), "mid first, free last"
    assert len(set(seen)) > 4
    assert seen[-1] == whole
    assert fleet.world.state.guards == {}
    assert fleet.capacity().reason != "slo"


def test_returns_are_spaced_by_calm() -> None:
    fleet = Guarded()
    fleet.seconds(10, sli(p99_ms=BAD))
    times: list[int] = []
    for _ in range(30):
        out = fleet.second(sli(p99_ms=GOOD))
        if decisions(out):
            times.append(fleet.world.log_ms)
    assert len(times) >= 3
    assert all(b - a >= 3000 for a, b in pairwise(times))


def test_within_the_objective_but_not_calm_holds() -> None:
    fleet = broken()
    fleet.seconds(30, sli(p99_ms=BETWEEN))
    assert fleet.reasons() == ["slo_breach"]
    assert not fleet.capacity().new_work


def test_a_gap_is_neither_trouble_nor_calm() -> None:
    fleet = broken()
    fleet.second(sli(p99_ms=GOOD))
    fleet.seconds(60)
    assert fleet.reasons() == ["slo_breach", "slo_gap"]
    assert not fleet.capacity().new_work
    fleet.second(sli(p99_ms=GOOD))
    assert fleet.reasons()[-1] == "slo_gap", "calm begins anew after a gap"
    fleet.seconds(3, sli(p99_ms=GOOD))
    assert fleet.reasons()[-1] == "slo_over"


def test_silence_alone_does_nothing() -> None:
    fleet = Guarded()
    fleet.second(sli(p99_ms=BAD))
    fleet.seconds(30)
    fleet.second(sli(p99_ms=BAD))
    assert fleet.reasons() == [], "the first round is too old to count"


def test_it_goes_down_again_at_once_while_it_returns() -> None:
    fleet = broken()
    fleet.seconds(6, sli(p99_ms=GOOD))
    assert fleet.reasons()[-1] in ("slo_return", "slo_over")
    fleet = Guarded()
    fleet.seconds(12, sli(p99_ms=BAD))
    while fleet.reasons()[-1] != "slo_return":
        fleet.second(sli(p99_ms=GOOD))
    fleet.second(sli(p99_ms=BAD))
    assert fleet.reasons()[-1] == "slo_call_back"
    assert not fleet.capacity().new_work


@pytest.mark.parametrize(
    ("more", "counts"),
    [
        ({"requests": 99}, False), ({"requests": 100}, True),
        ({"window_ms": 10_001}, False), ({"window_ms": 10_000}, True),
    ],
)  # fmt: skip
def test_what_is_judged(more: dict[str, Any], counts: bool) -> None:
    fleet = Guarded()
    fleet.seconds(2, sli(p99_ms=BAD, **more))
    assert bool(fleet.reasons()) == counts


def test_errors_alone_are_a_breach() -> None:
    fleet = Guarded()
    fleet.seconds(2, sli(p99_ms=GOOD, errors=10))
    assert fleet.reasons() == [], "at the objective is within"
    fleet.seconds(2, sli(p99_ms=GOOD, errors=11))
    assert fleet.reasons() == ["slo_breach"]


def test_a_node_without_the_service_or_without_borrowed_work_is_not_concerned() -> None:
    other = node("n1")
    other.pods = (online("x", workload="shop/other"), *other.pods[1:])
    bare = node("n2")
    bare.pods = bare.pods[:1]
    fleet = Guarded((node(), other, bare))
    reports = [sli(name, p99_ms=BAD) for name in ("n0", "n1", "n2")]
    fleet.seconds(3, *reports)
    assert [bool(fleet.reasons(name)) for name in ("n0", "n1", "n2")] == [True, False, False]


def test_one_service_cannot_drive_the_whole_partition() -> None:
    nodes = tuple(node(f"n{i}") for i in range(10))
    fleet = Guarded(nodes, RULE.replace("most_nodes_permille: 1000", "most_nodes_permille: 200"))
    fleet.seconds(4, *(sli(f"n{i}", p99_ms=BAD) for i in range(10)))
    by_name = {n.name: fleet.reasons(n.name) for n in nodes}
    began = [name for name, reasons in by_name.items() if "slo_breach" in reasons]
    assert began == ["n0", "n1"]
    assert by_name["n5"] == ["slo_bounded"], "told once"
    fleet.seconds(9, *(sli(f"n{i}", p99_ms=GOOD if i < 2 else BAD) for i in range(10)))
    assert "slo_breach" in fleet.reasons("n2"), "a place has become free"


def test_a_service_that_fell_silent_stirs_nobody() -> None:
    fleet = Guarded()
    fleet.second(sli(p99_ms=BAD))
    assert fleet.world.state.beyond == {b"n0"}
    fleet.seconds(13)
    assert fleet.world.state.beyond == set()


def test_another_service_has_its_own_bound() -> None:
    nodes = tuple(node(f"n{i}", online(f"api{i}", workload=API)) for i in range(3))
    fleet = Guarded(nodes, RULE.replace("most_nodes_permille: 1000", "most_nodes_permille: 334"))
    web = [sli(f"n{i}", p99_ms=BAD) for i in range(3)]
    fleet.seconds(2, *web)
    assert [bool(fleet.world.state.guards.get(n.name.encode())) for n in nodes] == [
        True, False, False
    ]  # fmt: skip
    fleet.second(sli("n2", p99_ms=BAD, workload=API))
    assert fleet.reasons("n2")[-1] == "slo_breach"


def test_a_service_that_leaves_the_node_lets_it_go_after_calm() -> None:
    fleet = broken()
    each = fleet.nodes[0]
    each.pods = (online("n0-other"), *each.pods[1:])
    each.rev += 1
    fleet.world.know(each)
    fleet.seconds(4)
    assert fleet.reasons()[-1] in ("slo_return", "slo_over")


def test_without_objectives_any_more_all_is_given_back_at_once() -> None:
    fleet = broken()
    fleet.put("slo_guard: {enabled: false}\n")
    assert fleet.reasons()[-1] == "slo_off"
    assert fleet.capacity().new_work
    fleet.second()
    state = fleet.world.state
    assert (state.guards, state.watches) == ({}, {})


def test_an_objective_that_goes_is_forgotten_and_another_begins_anew() -> None:
    fleet = Guarded()
    fleet.second(sli(p99_ms=BAD))
    fleet.put(RULE.replace("shop/web", "shop/other"))
    assert fleet.world.state.watches == {}
    fleet.put(RULE, version=3)
    fleet.second(sli(p99_ms=BAD))
    assert fleet.reasons() == [], "the first round of the new objective"


def test_off_nothing_is_kept_and_nothing_is_said() -> None:
    fleet = Guarded(rule="")
    fleet.seconds(5, sli(p99_ms=BAD))
    assert fleet.world.state.watches == {}
    assert decisions(fleet.all) == []


def test_an_observing_node_is_left_alone() -> None:
    fleet = Guarded(base=FAST.replace("stage: expand", "stage: observe"))
    fleet.seconds(5, sli(p99_ms=BAD))
    assert decisions(fleet.all) == []


def test_an_empty_order_stops_new_work_and_calls_nothing_back() -> None:
    fleet = Guarded(rule=RULE.replace("slo_guard: {", "slo_guard: {order: [], "))
    before = amounts(fleet.capacity())
    fleet.seconds(10, sli(p99_ms=BAD))
    assert not fleet.capacity().new_work
    assert amounts(fleet.capacity()) == before
    fleet.seconds(5, sli(p99_ms=GOOD))
    assert fleet.capacity().new_work


@pytest.mark.parametrize(
    "bad",
    [
        {"p99_us": -1}, {"requests": -5}, {"errors": 2_000}, {"p50_us": 10**9},
        {"p99_us": 10**15, "p50_us": 0}, {"window_ms": 0}, {"workload": ""}, {"requests": 1 << 60},
    ],
)  # fmt: skip
def test_nonsense_moves_nothing(bad: dict[str, Any]) -> None:
    fleet = Guarded()
    topic, partition, key, record = sli(p99_ms=BAD)
    values = {name: getattr(record, name) for name in record.__slots__} | bad
    fleet.seconds(3, (topic, partition, key, type(record)(**values)))
    assert fleet.reasons() == []
    assert fleet.world.state.counts["bad_sli"] == 3


def test_old_doubled_and_foreign_reports_move_nothing() -> None:
    fleet = Guarded()
    now_ms = fleet.world.log_ms
    fleet.second(sli(p99_ms=BAD, end_ms=now_ms))
    fleet.second(sli(p99_ms=BAD, end_ms=now_ms))
    fleet.second(sli(p99_ms=BAD, end_ms=now_ms - 60_000))
    topic, partition, _, record = sli("n0", p99_ms=BAD)
    fleet.second((topic, partition, b"n9", record), sli("n7", p99_ms=BAD))
    assert fleet.reasons() == []
    counts = fleet.world.state.counts
    assert {name: counts[name] for name in counts if "sli" in name or name == "key_mismatch"} == {
        "sli_said_again": 1, "stale_sli": 1, "key_mismatch": 1, "sli_of_unknown_node": 1,
    }  # fmt: skip


def test_the_age_of_a_report_is_that_of_its_record() -> None:
    """A backlog that a worker admits late says nothing of now."""
    fleet = Guarded()
    world = fleet.world
    for place in range(3):
        topic, partition, key, record = sli(p99_ms=BAD)
        world.offset += 1
        world.log_ms += 1
        side = SideRecord(topic, partition, place, key, record, world.log_ms - 30_000)
        world.side_offsets["slis/3"] = place
        tick = Tick(PARTITION, INCARNATION, 6, dict(world.side_offsets))
        world.feed(TickEntry(world.offset, world.log_ms, tick, (side,)))
    assert world.state.counts["stale_sli"] == 3
    assert world.state.watches == {}


def test_a_node_that_leaves_takes_its_guard_along() -> None:
    fleet = broken()
    gone: Inventory = fleet.nodes[0].inventory(removed=True)
    fleet.world.tick(1000, ("inventory", PARTITION, b"n0", gone))
    assert (fleet.world.state.guards, fleet.world.state.watches) == ({}, {})


def test_a_node_in_doubt_holds_and_never_falls_below_what_is_lent() -> None:
    fleet = broken()
    for _ in range(8):
        fleet.all += fleet.world.tick(1000, sli(p99_ms=BAD))
    last = fleet.capacity()
    assert (last.reason, last.new_work) == ("silent", False)
    assert last.batch_cpu_milli >= last.cpu_terms["lent"]


def test_every_reason_has_words_and_figures() -> None:
    fleet = Guarded((node("n0"), node("n1")), RULE.replace("permille: 1000,", "permille: 500,", 1))
    reports = [(BAD, 6), (GOOD, 1)]
    for p99_ms, count in reports:
        fleet.seconds(count, sli("n0", p99_ms), sli("n1", p99_ms))
    fleet.seconds(12)
    fleet.seconds(30, sli("n0", GOOD))
    fleet.seconds(2, sli("n0", BAD))
    fleet.put("")
    given = {reason for record in decisions(fleet.all) for reason in record.outcome}
    assert given == {
        "slo_breach", "slo_call_back", "slo_gap", "slo_return", "slo_over", "slo_bounded",
        "slo_off",
    }  # fmt: skip
    assert given <= REASONS.keys()
    assert "slo_guard" in RULES
    for record in decisions(fleet.all):
        assert {len(column) for column in record.columns.values()} <= {len(record.nodes)}
    first = decisions(fleet.all)[0]
    assert first.columns[f"for {WEB}"][0] == 1
    assert first.columns["p99_us"][0] == BAD * 1000


def test_it_is_told_in_words() -> None:
    fleet = Guarded()
    fleet.seconds(4, sli(p99_ms=BAD, errors=3))
    record = decisions(fleet.all)[-1]
    terms = {name: column[0] for name, column in record.columns.items()}
    told = sentence(Seen("n0", "slo_guard", record.outcome[0], terms))
    assert told == (
        "beside shop/web on n0, of which was last said a p99 of 150 ms and 3 errors in 1000 of "
        "1000 requests, 0.0 s ago; the objective is at most 100 ms and 10 errors in 1000; of what "
        "there was stay free 0 %, batch 100 %, mid 100 %, and best-effort work may use 2.50 cores "
        "at most: it has not come back since the last step, so more is called back."
    )
    off = sentence(Seen("n0", "slo_guard", "slo_off", {}))
    assert off.startswith("on n0: policy or the stage of the rollout has no objectives here")


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([GOOD, BETWEEN, BAD]), st.sampled_from([0, 1, 500]),
                  st.booleans()),
        min_size=10, max_size=40,
    ),
    st.integers(0, 40),
)  # fmt: skip
def test_whatever_is_said_caps_hold_and_an_image_goes_on_alike(
    reports: list[tuple[int, int, bool]], cut: int
) -> None:
    fleet = Guarded()
    whole = amounts(fleet.capacity())
    restored, rest = None, 0
    for number, (p99_ms, requests, heard) in enumerate(reports):
        if number == cut % len(reports):
            meta, arrays = fleet.world.state.to_arrays()
            restored = PartitionState.from_arrays(json.loads(json.dumps(meta)), arrays)
            rest = len(fleet.world.log)
        fleet.second(*([sli(p99_ms=p99_ms, requests=requests)] if heard else []))
        record = fleet.capacity()
        assert min(amounts(record)) >= 0
        assert all(now <= most for now, most in zip(amounts(record), whole, strict=True))
        guard = fleet.world.state.guards.get(b"n0")
        if guard is not None and guard.cap:
            assert record.batch_cpu_milli <= guard.cap[0]
            assert record.mid_cpu_milli <= guard.cap[2]
    assert restored is not None
    later = step(restored, fleet.world.log[rest:])
    assert said(later) == said([o for o in fleet.all if o.offset >= fleet.world.log[rest].offset])
    assert restored.digest() == fleet.world.state.digest()
    assert not any(c.pods for c in of(fleet.all, "commands"))


def test_two_in_one_state_are_one_log_however_cut() -> None:
    fleet = Guarded((node("n0"), node("n1")))
    fleet.seconds(9, sli("n0", p99_ms=BAD), sli("n1", p99_ms=BAD))
    fleet.seconds(12, sli("n0", p99_ms=GOOD))
    log = fleet.world.log
    whole = PartitionState(PARTITION, INCARNATION)
    once = step(whole, log)
    for size in (1, 3, 17):
        state = PartitionState(PARTITION, INCARNATION)
        parts = [o for i in range(0, len(log), size) for o in step(state, log[i : i + size])]
        assert said(parts) == said(once)
        assert state.digest() == whole.digest()
    assert isinstance(fleet.world, World)
