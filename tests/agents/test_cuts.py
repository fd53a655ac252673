"""Same log, same bytes: however it is cut into batches, recovered, or replayed."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.log import Entry, Output, SampleEntry
from agents.state import PartitionState
from agents.step import step
from schemas.packed import PackedSample
from schemas.records import FleetFacts, LedgerEntry, Sli
from tests.agents.worlds import (
    GIB,
    INCARNATION,
    MEMORY,
    PARTITION,
    WARM,
    Node,
    World,
    best_effort,
    online,
    said,
)

PREDICTED = "prediction: {enabled: true, cold_start_ms: 0}\n"
GUARDED = (
    "slo_guard: {step_wait_ms: 100, calm_ms: 100, objectives:"
    " [{workload: web, p99_us: 1000, rounds: 1, window_ms: 40000}]}\n"
)
POLICIES = st.sampled_from(("", PREDICTED + GUARDED))


def random_log(seed: int, length: int, more: str = "") -> list[Entry]:
    """A log with late, lost, doubled and reordered samples, pod sets that change, side records."""
    dice = random.Random(seed)
    nodes = [
        Node(f"n{i}", tuple([online(f"n{i}o{k}", workload="web") for k in range(dice.randrange(3))]
             + [best_effort(f"n{i}b{k}") for k in range(dice.randrange(3))]))
        for i in range(4)
    ]  # fmt: skip
    short = "interference: {history_ms: 20000}\nblast: {facts_stale_ms: 5000}\n"
    warm = WARM.replace("warm_ms: 0", "warm_ms: 0, short_model: predicted") if more else WARM
    world = World(warm + short + more, *nodes[:3])
    for _ in range(24 if more else 0):  # two minutes for models to begin
        world.log_ms += 5000
        for node in nodes[:3]:
            world.say(node.sample(elapsed_ms=5000), 0)
        world.tick(0)
    spare: list[PackedSample] = []
    for number in range(length):
        node = dice.choice(nodes)
        deed = dice.random()
        if deed < 0.70:
            elapsed = dice.choice([1000, 1000, 1000, 200, 12_000, 61_000, 700_000])
            sample = node.sample(
                [dice.randrange(3000) for _ in node.pods],
                system=dice.randrange(500),
                elapsed_ms=elapsed,
                quota=dice.choice([-1, 3000, 800, None]),
                available=dice.choice([20 * GIB, 5 * GIB, GIB, 0, None, MEMORY]),
                used=[dice.choice([GIB, 3 * GIB, None, 0]) for _ in node.pods],
                pressure_us_per_s=dice.choice([0, 0, 5000, 400_000]),
                drop=dice.choice([(), (), ("cpu_usage_us",), ("cpu_busy_us",)]),
            )
            spare.append(sample)
            if dice.random() < 0.9:
                world.say(sample, dice.choice([0, 200, elapsed // 4]))
        elif deed < 0.75 and spare:
            world.say(dice.choice(spare), 100)
        elif deed < 0.80:
            node.boot, node.seq = f"{number:032x}", 0
        elif deed < 0.85:
            node.pods = (
                *node.pods[1:],
                dice.choice([online, best_effort])(f"{node.name}p{number}"),
            )
            node.cpu_us = node.cpu_us[1:]
            node.rev += 1
            if dice.random() < 0.8:
                world.know(node)
        else:
            world.tick(dice.choice([300, 900, 1000, 4000, 30_000]), *side_records(dice, nodes))
    return world.log


def side_records(dice: random.Random, nodes: list[Node]) -> list[tuple[str, int, bytes, Any]]:
    node = dice.choice(nodes)
    key = node.name.encode()
    facts = FleetFacts(1, 1, 4, 0, 0, dice.choice([0, 600]), dice.randrange(3), 10_000)
    lent = LedgerEntry(node.name, "yarn", dice.randrange(4000), dice.randrange(8 * GIB))
    choices: list[tuple[str, int, bytes, Any]] = [
        ("fleet", 0, b"fleet", facts),
        ("ledger", PARTITION, key, lent),
        ("inventory", PARTITION, key, dice.choice([node.inventory(), None])),
        ("slis", PARTITION, key, Sli("web", node.name, 1000, 0, dice.choice((500, 2000)), 1000)),
    ]
    return dice.sample(choices, dice.randrange(4))


def cut(log: list[Entry], cuts: list[int]) -> list[list[Entry]]:
    edges = [0, *sorted(c % (len(log) + 1) for c in cuts), len(log)]
    return [log[a:b] for a, b in itertools.pairwise(edges)]


def fold(batches: list[list[Entry]]) -> tuple[list[Output], PartitionState]:
    state = PartitionState(PARTITION, INCARNATION)
    return [output for batch in batches for output in step(state, batch)], state


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.integers(0, 10**6), max_size=12), POLICIES)
def test_same_log_same_bytes_however_cut(seed: int, cuts: list[int], more: str) -> None:
    log = random_log(seed, 80, more)
    whole, state = fold([log])
    parts, other = fold(cut(log, cuts))
    assert said(parts) == said(whole)
    assert other.digest() == state.digest()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 30), POLICIES)
def test_recovered_from_an_image_goes_on_as_if_never_stopped(
    seed: int, place: int, again: int, more: str
) -> None:
    log = random_log(seed, 80, more)
    at = place % (len(log) + 1)
    first, state = fold([log[:at]])
    meta, arrays = state.to_arrays()
    restored = PartitionState.from_arrays(json.loads(json.dumps(meta)), arrays)
    assert restored.digest() == state.digest()
    # What was folded before the image comes again: it must be skipped.
    rest = step(restored, log[max(at - again, 0) :])
    whole, live = fold([log])
    assert said(first + rest) == said(whole)
    assert restored.digest() == live.digest()


def test_models_have_begun_when_the_random_part_does() -> None:
    trained = 0
    for seed in range(6):
        models = fold([random_log(seed, 0, PREDICTED)])[1].models
        assert models is not None
        trained += int(np.count_nonzero(models.pods["since_ms"] >= 0))
    assert trained > 6


def test_outputs_have_distinct_keys_and_are_sorted() -> None:
    for seed in range(6):
        out, _ = fold([random_log(seed, 100)])
        keys = [(o.offset, o.node, o.decider, o.topic) for o in out]
        assert keys == sorted(keys)
        assert len(keys) == len(set(keys)), "two outputs of one key: readers would drop one"


def test_random_logs_reach_every_kind_of_output() -> None:
    topics = {(o.topic, o.decider) for seed in range(8) for o in fold([random_log(seed, 200)])[0]}
    assert topics >= {
        ("commands", "suppress"), ("commands", "evict_memory"), ("commands", "lease"),
        ("capacity", "capacity"), ("reservations", "reservation"), ("signals", "interference"),
        ("fleet", "health"), ("dead-letters", "admission"), ("decisions", "capacity"),
    }  # fmt: skip


def test_an_entry_at_or_below_at_is_skipped() -> None:
    log = random_log(5, 60)
    _, state = fold([log])
    before = state.digest()
    assert step(state, log) == []
    assert state.digest() == before


def test_log_time_never_runs_back() -> None:
    node = Node()
    world = World(WARM, node)
    world.say(node.sample())
    late = SampleEntry(world.offset + 1, world.log_ms - 5000, node.sample())
    world.feed(late)
    assert world.state.log_ms == world.log_ms


def test_random_logs_call_capacity_back() -> None:
    said_of = {
        reason
        for seed in range(6)
        for output in fold([random_log(seed, 200, GUARDED)])[0]
        if output.decider == "slo_guard"
        for reason in output.record.outcome
    }
    assert said_of >= {"slo_breach", "slo_return"}
