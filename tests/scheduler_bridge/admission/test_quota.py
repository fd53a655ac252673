"""Quotas: judged by the peer's law, borrowed by class, called back in a total order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from agents.placement.quota_tree import Quota, refresh
from scheduler_bridge.admission.names import QUOTA_LABEL, Resources
from scheduler_bridge.admission.overuse import Overuse, order
from scheduler_bridge.admission.pod import read
from scheduler_bridge.admission.quota import QuotaRefused, Tree
from scheduler_bridge.admission.quota_book import UNSEEN_MS, Entry, QuotaBook, entry_of
from scheduler_bridge.admission.rules import Free, parse
from tests.scheduler_bridge.admission.pods import BE, pod

B, M = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
NAMES = Resources()
RULES = """
quotas:
  - {name: all, max: {batch_cpu_milli: 100}, min: {batch_cpu_milli: 80}}
  - {name: red, parent: all, max: {batch_cpu_milli: 80}, min: {batch_cpu_milli: 30}}
  - {name: blue, parent: all, max: {batch_cpu_milli: 80}, min: {batch_cpu_milli: 50}, namespaces: [sea]}
"""  # noqa: E501
TOTAL = {B: 100, M: 100}


def entry(uid: str, quota: str, milli: int, share: str = "batch", **more: Any) -> Entry:
    firm = share in ("prod", "mid")
    return Entry(uid, "n", uid, quota, share, firm, {B: milli}, **more)


def tree(text: str = RULES) -> Tree:
    return Tree(parse(text, "rules.yaml"), NAMES)


def book(*entries: Entry) -> QuotaBook:
    made = QuotaBook()
    for one in entries:
        made.see(one.uid, one)
    return made


@settings(deadline=None)
@given(
    some.lists(some.tuples(some.sampled_from(["red", "blue"]), some.integers(0, 60)), max_size=8),
    some.sampled_from(["red", "blue"]),
    some.integers(1, 60),
)
def test_shares_are_those_of_the_law_for_what_is_used(
    used: list[tuple[str, int]], quota: str, asks: int
) -> None:
    filled = book(*(entry(f"u{i}", name, milli) for i, (name, milli) in enumerate(used)))
    asked = entry("new", quota, asks)
    got = tree().shares_with(asked, filled, TOTAL)
    requests = {"red": 0, "blue": 0, quota: asks} | {}
    for name, milli in used:
        requests[name] += milli
    expected = refresh(
        {B: 100},
        [
            Quota("all", "root", {B: 100}, {B: 80}, {}),
            Quota("red", "all", {B: 80}, {B: 30}, {B: requests["red"]}),
            Quota("blue", "all", {B: 80}, {B: 50}, {B: requests["blue"]}),
        ],
        True,
    )
    assert {name: share.runtime for name, share in got.items()} == {
        name: share.runtime for name, share in expected.items()
    }
    filled.see("new", asked)
    whole = tree().shares(filled, TOTAL)
    assert {name: whole[name].runtime[B] for name in got} == {
        name: share.runtime[B] for name, share in got.items()
    }
    filled.see("new", None)
    said = tree().judge(asked, filled, TOTAL)
    fits = filled.of(quota).used.get(B, 0) + asks <= expected[quota].runtime[B]
    below = sum(filled.of(name).used.get(B, 0) for name in ("red", "blue"))
    assert bool(said) == (not fits or below + asks > expected["all"].runtime[B])


@settings(deadline=None)
@given(some.data())
def test_quotas_beside_the_way_stand_for_all_below_them(data: some.DataObject) -> None:
    names = ["a", "b", "a1", "a2", "b1", "b2", "b1x", "b1y"]
    parents = {"a": "root", "b": "root", "a1": "a", "a2": "a", "b1": "b", "b2": "b",
               "b1x": "b1", "b1y": "b1"}  # fmt: skip
    quotas = []
    for name in names:
        most = data.draw(some.integers(0, 100), f"maximum of {name}")
        least = data.draw(some.integers(0, most), f"minimum of {name}")
        lends = data.draw(some.booleans(), f"{name} lends")
        quotas.append(
            f"{{name: {name}, parent: {parents[name]}, max: {{batch_cpu_milli: {most}}}, "
            f"min: {{batch_cpu_milli: {least}}}, lends: {str(lends).lower()}}}"
        )
    made = tree(f"quotas: [{', '.join(quotas)}]")
    leaves = ["a1", "a2", "b2", "b1x", "b1y"]
    used = {name: data.draw(some.integers(0, 90), f"use of {name}") for name in leaves}
    filled = book(*(entry(name, name, milli) for name, milli in used.items()))
    one = entry("new", data.draw(some.sampled_from(leaves)), data.draw(some.integers(1, 90)))
    total = {B: data.draw(some.integers(0, 200), "total")}
    got = made.shares_with(one, filled, total)
    filled.see("new", one)
    whole = made.shares(filled, total)
    assert one.quota in got
    assert {name: share.runtime[B] for name, share in got.items()} == {
        name: whole[name].runtime[B] for name in got
    }


def test_batch_borrows_mid_and_prod_do_not_and_free_owns_nothing() -> None:
    empty, quotas = book(), tree()
    assert not quotas.judge(entry("a", "red", 80), empty, TOTAL)
    for share in ("mid", "prod"):
        said = quotas.judge(entry("a", "red", 31, share), empty, TOTAL)
        assert said.startswith("quota_over_minimum: quota red owns 30")
        assert not quotas.judge(entry("a", "red", 30, share), empty, TOTAL)
    lent = book(entry("x", "red", 70), entry("y", "", 10))
    free = entry("f", "red", 20, "free")
    assert not quotas.judge(free, lent, TOTAL)
    lent.see("f", free)
    assert quotas.judge(entry("g", "", 1, "free"), lent, TOTAL).startswith("free_over_rest: of ")
    assert not quotas.judge(entry("z", "blue", 10), lent, TOTAL), "free pods stand in nobody's way"


@pytest.mark.parametrize("amount", ["99999999999999999999", "8Ei", "1e30"])
def test_a_pod_that_asks_for_too_much_is_told_so_and_no_error(amount: str) -> None:
    huge = read(pod({B: amount}, labels={QUOTA_LABEL: "red", **BE}), NAMES, "n")
    quotas = tree()
    said = quotas.judge(entry_of(huge, quotas.quota_of(huge), NAMES, Free()), book(), TOTAL)
    assert said.startswith("quota_over_runtime: quota red may use 80")


def test_whose_quota_a_pod_is() -> None:
    quotas = tree()

    def of(namespace: str, label: str | None = None) -> str:
        labels = {} if label is None else {QUOTA_LABEL: label}
        document = pod(labels=labels)
        document["metadata"]["namespace"] = namespace
        return quotas.quota_of(read(document, NAMES))

    assert (of("sea"), of("red"), of("other"), of("other", "red")) == ("blue", "red", "", "red")
    for label, why in (
        ("green", "allowed: blue, red"),
        ("all", "has quotas below it"),
        ("blue", "is for namespaces sea"),
    ):
        with pytest.raises(QuotaRefused, match=why):
            of("other", label)
    strict = tree(RULES + "unquoted: refuse\n")
    assert strict.judge(entry("a", "", 1), book(), TOTAL).startswith("no_quota: namespace n has")


def test_what_was_let_in_counts_until_it_is_seen_or_surely_failed() -> None:
    counted = book()
    counted.let_in(entry("a", "red", 10), 0)
    counted.let_in(entry("a", "red", 10), 1)
    counted.let_in(entry("b", "red", 5), 0)
    assert counted.of("red").used == {B: 15}
    counted.see("a", entry("a", "red", 10))
    counted.let_in(entry("a", "red", 10), 2)
    assert counted.of("red").used == {B: 15}
    assert counted.expire(UNSEEN_MS - 1) == 0
    assert counted.expire(UNSEEN_MS) == 1
    assert counted.of("red").used == {B: 10}
    counted.see("a", None)
    assert not any((*counted.of("red").used.values(), *counted.lent.values()))


@settings(deadline=None)
@given(some.lists(some.tuples(
    some.sampled_from(["see", "let_in", "gone", "expire"]), some.sampled_from("abc"),
    some.integers(0, 9), some.sampled_from(["batch", "free", "mid"])), max_size=30))  # fmt: skip
def test_sums_are_those_of_the_entries(steps: list[tuple[str, str, int, str]]) -> None:
    counted = QuotaBook()
    seen: dict[str, Entry] = {}
    unseen: dict[str, tuple[Entry, int]] = {}
    for at, (step, uid, milli, share) in enumerate(steps):
        one = entry(uid, "red", milli, share)
        now_ms = at * 1000
        if step == "see":
            counted.see(uid, one)
            seen[uid] = one
            unseen.pop(uid, None)
        elif step == "let_in":
            counted.let_in(one, now_ms)
            if uid not in seen:
                unseen[uid] = one, now_ms + UNSEEN_MS
        elif step == "gone":
            counted.see(uid, None)
            seen.pop(uid, None)
            unseen.pop(uid, None)
        else:
            counted.expire(now_ms)
            unseen = {k: v for k, v in unseen.items() if v[1] > now_ms}
    every = [*seen.values(), *(one for one, _ in unseen.values())]

    def total(*shares: str) -> int:
        return sum(one.amounts[B] for one in every if one.share in shares)

    assert counted.of("red").used.get(B, 0) == total("batch", "mid")
    assert counted.of("red").firm.get(B, 0) == total("mid")
    assert counted.free.get(B, 0) == total("free")
    assert counted.lent.get(B, 0) == total("batch", "mid")


def test_new_rules_forget_nothing_that_was_just_let_in() -> None:
    old, new = QuotaBook(), QuotaBook()
    old.let_in(entry("a", "red", 10), 1000)
    old.let_in(entry("b", "red", 5), 0)
    new.take_over(old, UNSEEN_MS)
    assert new.of("red").used == {B: 10}
    assert new.expire(UNSEEN_MS + 999) == 0
    assert new.expire(UNSEEN_MS + 1000) == 1


def test_who_is_called_back_first() -> None:
    pods = [
        entry("old", "red", 1, priority=5500, created="2026-01-01T00:00:00Z"),
        entry("young", "red", 1, priority=5500, created="2026-01-02T00:00:00Z"),
        entry("cheap", "red", 1, priority=5500, cost=(0, 0)),
        entry("low", "red", 1, priority=5000, cost=(2, 0)),
        entry("dear", "red", 1, priority=5500, cost=(2, 0)),
    ]
    assert [one.uid for one in order(pods)] == ["low", "cheap", "young", "old", "dear"]
    assert order(reversed(pods)) == order(pods)


def test_over_use_is_called_back_after_a_while_and_no_more_than_needed() -> None:
    filled = book(
        *(entry(f"r{i}", "red", 20, priority=5000 + i) for i in range(4)),
        entry("b", "blue", 40),
        entry("m", "red", 5, "mid", priority=1),
    )
    plan = Overuse(after_ms=1000, most=10)
    assert plan.due(tree(), filled, TOTAL, 0) == []
    assert plan.due(tree(), filled, TOTAL, 999) == []
    due = plan.due(tree(), filled, TOTAL, 1000)
    assert [one.uid for one in due] == ["r0", "r1"], "85 of 60 used: the mid pod is firm"
    assert "red uses 85 of kubernetes.io/batch-cpu and may use 60" in due[0].why
    assert [one.uid for one in plan.due(tree(), filled, TOTAL, 1001, {"r0"})] == ["r1", "r2"]
    for uid in ("r0", "r1"):
        filled.see(uid, None)
    assert plan.due(tree(), filled, TOTAL, 1002) == []
    for uid in ("r0", "r1"):
        filled.see(uid, entry(uid, "red", 20))
    assert plan.due(tree(), filled, TOTAL, 1003) == [], "over without a break begins anew"


def test_a_pod_that_fits_after_all_stays() -> None:
    filled = book(
        entry("small", "red", 5, priority=5000),
        entry("large", "red", 60, priority=5001),
        entry("b", "blue", 50),
    )
    due = Overuse(after_ms=0, most=10).due(tree(), filled, TOTAL, 0)
    assert [one.uid for one in due] == ["large"], "the small one alone is not enough"


def test_pods_on_their_way_out_count_as_gone_and_free_goes_when_its_place_is_lent() -> None:
    filled = book(
        entry("r", "red", 40, going=True), entry("r2", "red", 40), entry("b", "blue", 20),
        entry("f", "", 30, "free"),
    )  # fmt: skip
    due = Overuse(after_ms=0, most=10).due(tree(), filled, TOTAL, 0)
    assert [(one.uid, one.quota) for one in due] == [("f", "free")]
    over_lent = book(entry("b", "", 200))
    assert Overuse(0, 10).due(tree(), over_lent, TOTAL, 0) == []


def test_only_best_effort_batch_work_that_does_not_refuse_can_be_called_back() -> None:
    def firm(labels: dict[str, str], priority: int) -> bool:
        view = read(pod(labels=labels, priority=priority), NAMES)
        return entry_of(view, "red", NAMES, Free()).firm

    assert not firm(BE, 5500)
    assert firm({"koordinator.sh/qosClass": "LS"}, 5500), "an online pod is nobody's victim"
    assert firm({**BE, "quota.scheduling.koordinator.sh/preemptible": "false"}, 5500)
    assert firm(BE, 7500)
    assert not firm(BE, 3500)


def test_what_a_free_pod_consumes() -> None:
    note = '{"containers":{"main":{"limits":{"cpu":"500m"}}}}'
    notes = {"node.koordinator.sh/extended-resource-spec": note}
    view = read(pod(labels=BE, priority=3000, annotations=notes), NAMES)
    assert entry_of(view, "", NAMES, Free(memory_bytes=7)).amounts == {B: 500, M: 7}
    silent = read(pod(labels=BE, priority=3000), NAMES)
    assert entry_of(silent, "", NAMES, Free()).amounts == {B: 100, M: 200 << 20}
