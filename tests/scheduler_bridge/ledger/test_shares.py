"""Shares of a node between systems that cannot ask: every order of events, every death between."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_bridge.ledger.amounts import NOTHING, total, within
from scheduler_bridge.ledger.book import SHARE, Held, Slot, amount_of
from scheduler_bridge.ledger.shares import targets
from scheduler_bridge.reconcile import Amount
from schemas import ledger
from schemas.ledger_records import LedgerGrant
from tests.scheduler_bridge.ledger.checker import check
from tests.scheduler_bridge.ledger.world import KUBE, NODE, SYSTEMS, YARN, World

MIB = 1 << 20


def share(world: World, name: str) -> Amount:
    return amount_of(world.book.of(NODE).grants[Slot(name, SHARE)])


def test_what_is_free_is_dealt_by_weight_and_yarn_is_shown_whole_cores() -> None:
    world = World(Random(1), Amount(7500, 9 * MIB))
    world.begin()
    world.settle()
    assert world.shows == {"kubernetes": Amount(4500, 5 * MIB), "yarn": Amount(3000, 4 * MIB)}
    assert share(world, "yarn") == Amount(3000, 4 * MIB)


def test_a_slice_passes_only_when_it_has_been_seen_released() -> None:
    world = World(Random(1))
    world.waits["yarn"] = False
    world.begin()
    world.settle()
    assert world.shows["kubernetes"] == Amount(8000, 8 * MIB)
    assert world.start("kubernetes", Amount(5000, MIB))
    world.waits = {"kubernetes": False, "yarn": True}
    told = world.look()
    assert told.tell["kubernetes"] == Amount(5000, MIB)
    assert told.tell["yarn"] == NOTHING
    assert told.records[:1] == world.look().records[:1]  # a look changes nothing
    world.turn()  # told: kubernetes shows less, its answer still says 8000
    assert share(world, "kubernetes").cpu_milli == 8000
    world.turn()  # seen: its answer is lowered
    assert share(world, "kubernetes").cpu_milli == 5000
    assert world.shows["yarn"] == NOTHING
    world.turn()  # read back: yarn's is raised
    assert share(world, "yarn") == Amount(3000, 7 * MIB)
    assert world.shows["yarn"] == NOTHING
    world.turn()
    assert world.shows["yarn"] == Amount(3000, 7 * MIB)
    assert check(world.log).over == []


def test_a_fall_below_what_is_held_shows_each_what_the_others_leave_it() -> None:
    world = World(Random(1))
    world.begin()
    world.settle()
    assert world.start("kubernetes", Amount(4000, MIB))
    assert world.start("yarn", Amount(4000, MIB))
    world.lendable = Amount(6000, 4 * MIB)
    world.settle()
    assert world.shows["kubernetes"].cpu_milli == 2000
    assert world.shows["yarn"].cpu_milli == 4000  # never less than runs
    assert check(world.log).over == []
    world.runs["kubernetes"].clear()
    world.waits["yarn"] = False
    world.settle()
    assert world.shows["kubernetes"].cpu_milli == 2000
    assert within(total(world.shows.values()), world.lendable)


def test_without_new_work_nothing_rises_and_yarn_has_no_room() -> None:
    world = World(Random(1))
    world.begin()
    world.settle()
    world.start("yarn", Amount(1000, MIB))
    world.new_work = False
    world.lendable = Amount(9000, 9 * MIB)
    world.settle()
    assert world.shows == {"kubernetes": Amount(4000, 4 * MIB), "yarn": Amount(1000, MIB)}


def test_a_system_that_does_not_answer_keeps_its_slice_and_nobody_gains() -> None:
    world = World(Random(1))
    world.begin()
    world.settle()
    world.sure = False
    world.lendable = Amount(20_000, 20 * MIB)
    before = len(world.log)
    world.settle()
    assert len(world.log) == before
    world.sure = True
    world.settle()
    assert total(world.shows.values()) == world.lendable


def test_a_claim_waits_for_the_shares_to_shrink_and_is_granted_then() -> None:
    world = World(Random(1))
    world.begin()
    world.settle()
    assert total(world.shows.values()) == world.lendable
    world.claim("job-1", Amount(3000, MIB))
    world.settle()
    granted = world.book.of(NODE).grants[Slot("slurm", "job-1")]
    assert granted.granted
    assert amount_of(granted) == Amount(3000, MIB)
    assert within(total([*world.shows.values(), Amount(3000, MIB)]), world.lendable)
    world.append(ledger.claim_key(NODE, "slurm", "job-1"), None)
    world.settle()
    assert total(world.shows.values()) == world.lendable
    assert check(world.log).over == []


def test_an_earlier_bridge_that_wakes_up_changes_nothing_and_is_written_over() -> None:
    world = World(Random(1))
    world.begin()
    world.settle()
    old = world.reign
    world.begin()
    stray = LedgerGrant(NODE, "yarn", SHARE, True, "", old, cpu_milli=8000, lendable_cpu_milli=8000)
    world.append(ledger.grant_key(NODE, "yarn", SHARE), stray)
    assert share(world, "yarn").cpu_milli == 4000
    world.settle()
    newest = next(one for one in reversed(world.log) if b"yarn/share" in one.key)
    world.book.fold(newest.key, newest.raw, 0, newest.offset, newest.log_ms)
    assert share(world, "yarn").cpu_milli == 4000
    verdict = check(world.log)
    assert (verdict.void, verdict.over) == (1, [])


def test_who_is_not_here_gets_nothing_that_it_does_not_hold() -> None:
    held = {"kubernetes": Amount(1000, 0), "yarn": Amount(2000, 0)}
    none = dict.fromkeys(held, NOTHING)
    found = targets(Amount(8000, 0), SYSTEMS, held, none, none, [KUBE])
    assert found == {"kubernetes": Amount(6000, 0), "yarn": Amount(2000, 0)}
    assert targets(Amount(8000, 0), SYSTEMS, held, none, none, []) == held


EVENT = st.sampled_from(
    ["turn", "turn", "turn", "die", "start", "start", "end", "capacity", "claim", "free", "waits"]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(EVENT, max_size=60), st.integers(0, 2**32))
def test_at_every_offset_no_grant_was_made_without_room(events: list[str], seed: int) -> None:
    dice = Random(seed)
    world = World(dice)
    world.begin()
    for event in events:
        happen(world, event, dice)
    world.lendable, world.new_work = Amount(8000, 8 * MIB), True
    world.settle()
    verdict = check(world.log)
    assert verdict.over == []


def happen(world: World, event: str, dice: Random) -> None:
    name = dice.choice(["kubernetes", "yarn"])
    some = Amount(dice.choice([1000, 2000, 3000]), dice.choice([1, 2]) * MIB)
    if event == "turn":
        world.turn()
    elif event == "die":
        world.turn(writes=dice.randrange(3))
        world.begin()
    elif event == "start":
        world.start(name, some)
    elif event == "end":
        world.end(name)
    elif event == "capacity":
        world.lendable = Amount(dice.randrange(0, 12_000), dice.randrange(0, 12) * MIB)
        world.new_work = dice.random() < 0.8
    elif event == "claim":
        world.claim(dice.choice("ab"), some, dice.choice([500, 1_000, 60_000]))
    elif event == "free":
        world.append(ledger.claim_key(NODE, "slurm", dice.choice("ab")), None)
    elif event == "waits":
        world.waits[name] = not world.waits[name]


@settings(max_examples=150, deadline=None)
@given(st.lists(EVENT.filter(lambda e: e != "capacity"), max_size=60), st.integers(0, 2**32))
def test_while_capacity_stands_less_runs_than_there_is(events: list[str], seed: int) -> None:
    dice = Random(seed)
    world = World(dice)
    world.begin()
    for event in events:
        happen(world, event, dice)
        assert within(total([world.held("kubernetes"), world.held("yarn")]), world.lendable)
        assert within(total(world.shows.values()), world.lendable)
    verdict = check(world.log)
    assert max(verdict.most_cpu_milli.values(), default=0) <= world.lendable.cpu_milli


@given(
    st.integers(0, 20_000), st.integers(0, 9_000), st.integers(0, 9_000),
    st.integers(0, 9_000), st.integers(0, 9_000), st.integers(0, 9_000), st.integers(0, 9_000),
)  # fmt: skip
def test_targets_never_add_up_to_more_than_there_is(
    could: int, held_k: int, held_y: int, waits_k: int, waits_y: int, has_k: int, has_y: int
) -> None:
    def both(kube: int, yarn: int) -> dict[str, Amount]:
        return {KUBE.name: Amount(kube, 0), YARN.name: Amount(yarn // 1000 * 1000, 0)}

    held = both(held_k, held_y)
    found = targets(
        Amount(could, 0), SYSTEMS, held, both(waits_k, waits_y), both(has_k, has_y), SYSTEMS
    )
    sum_ = total(found.values()).cpu_milli
    if total(held.values()).cpu_milli <= could:
        assert sum_ == could
        assert all(found[name].cpu_milli >= held[name].cpu_milli for name in held)
    else:
        assert sum_ <= total(held.values()).cpu_milli
    assert (
        found[YARN.name].cpu_milli % 1000 == 0
        or found[YARN.name].cpu_milli < held[YARN.name].cpu_milli
    )


@pytest.mark.parametrize("held", [Held(NOTHING), Held(Amount(1000, MIB))])
def test_what_is_held_is_said_once(held: Held) -> None:
    world = World(Random(1))
    if held.amount != NOTHING:
        world.runs["yarn"].append(held.amount)
        world.shows["yarn"] = held.amount
    world.begin()
    world.settle()
    said = [one for one in world.log if one.key == b"n/yarn"]
    assert len(said) == (held.amount != NOTHING)
