"""No record, however odd, stops the law or harms a neighbour; and no CPU changes its answers."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.log import SampleEntry
from schemas import packed
from schemas.columns import NODE_COLUMNS, POD_COLUMNS
from schemas.records import FleetFacts, Inventory, LedgerEntry, NodeSample, PodFact
from tests.agents.worlds import PARTITION, WARM, Node, World, best_effort, of, online, said

ROOT = Path(__file__).parents[2]
WORD = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.sampled_from([0, -1, 2**63 - 1, -(2**63), 2**50, 1])
)
HUGE = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(0, 10**6))


@st.composite
def samples(draw: st.DrawFn) -> packed.PackedSample:
    count = draw(st.sampled_from([0, 2, 2, 2, 5]))
    value = st.one_of(st.none(), WORD)
    names = st.lists(st.sampled_from(list(NODE_COLUMNS)), unique=True)
    node = {name: draw(value) for name in draw(names)}
    pods = {
        name: draw(st.lists(value, min_size=count, max_size=count))
        for name in draw(st.lists(st.sampled_from(list(POD_COLUMNS)), unique=True))
    }
    whole = NodeSample(
        "odd", draw(st.sampled_from(["0" * 32, "1" * 32])), "0" * 32,
        draw(st.integers(0, 2**63 - 1)), draw(st.integers(0, packed.MAX_MONO_US)), draw(WORD),
        draw(st.integers(0, 2**32 - 1)), draw(st.sampled_from([0, 1, 7])), count, node, pods,
    )  # fmt: skip
    return packed.PackedSample(packed.encode(whole))


@st.composite
def side_records(draw: st.DrawFn) -> tuple[str, int, bytes, Any]:
    pod = st.builds(
        PodFact, st.sampled_from(["a", "b", "c", ""]), st.just("n"),
        qos=st.sampled_from(["BE", "LS", ""]), priority=HUGE, cpu_request_milli=HUGE,
        memory_request_bytes=HUGE, terminating=st.booleans(),
    )  # fmt: skip
    inventory = st.builds(
        Inventory, st.just("odd"), HUGE, HUGE, HUGE, HUGE, HUGE, HUGE, HUGE,
        pods=st.lists(pod, max_size=3).map(tuple),
    )  # fmt: skip
    ledger = st.builds(LedgerEntry, st.just("odd"), st.just("yarn"), HUGE, HUGE)
    facts = st.builds(FleetFacts, HUGE, HUGE, HUGE, HUGE, HUGE, HUGE, HUGE, HUGE)
    topic = draw(st.sampled_from(["inventory", "ledger", "fleet"]))
    record = draw({"inventory": inventory, "ledger": ledger, "fleet": facts}[topic])
    partition = 0 if topic == "fleet" else PARTITION
    return topic, partition, b"fleet" if topic == "fleet" else b"odd", record


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(samples(), side_records()), max_size=8), st.integers(0, 10**7))
def test_r8_odd_records_harm_only_themselves(deeds: list[Any], gap_ms: int) -> None:
    neighbour, alone = Node("good"), Node("good")
    world, plain = World(WARM, Node("odd"), neighbour), World(WARM, Node("odd"), alone)
    for deed in deeds:
        if isinstance(deed, tuple):
            world.tick(1000, deed)
            plain.tick(1000)
        else:
            world.say(deed, gap_ms)
            plain.log_ms += gap_ms
            plain.offset += 1
        mine = [o for o in said(world.say(neighbour.sample(), 0)) if o[2] == "suppress"]
        assert mine == [o for o in said(plain.say(alone.sample(), 0)) if o[2] == "suppress"]
    world.tick(1000)
    meta, arrays = world.state.to_arrays()
    assert type(world.state).from_arrays(meta, arrays).digest() == world.state.digest()


def test_an_empty_batch_and_a_sample_of_no_columns() -> None:
    world = World(WARM, Node("odd", ()))
    bare = NodeSample("odd", "0" * 32, "0" * 32, 1, 1, 0, 1000, 1, 0)
    out = world.say(packed.PackedSample(packed.encode(bare)))
    assert out == []
    assert world.value(Node("odd"), "usage") == [-1, -1]


def story() -> str:
    """The digest of outputs and state after a fixed story of some nodes."""
    dice = np.random.Generator(np.random.PCG64(7))
    nodes = [
        Node(f"n{i}", tuple([online(f"{i}o{k}") for k in range(7)] + [best_effort(f"{i}b")]))
        for i in range(9)
    ]
    world = World(WARM + "interference: {history_ms: 60000}\n", *nodes)
    out = list(world.out)
    for _ in range(90):
        entries = []
        for node in nodes:
            world.offset += 1
            world.log_ms += 400
            sample = node.sample(
                dice.integers(0, 900, 8).tolist(),
                elapsed_ms=3600,
                available=int(dice.integers(6, 20)) << 30,
                pressure_us_per_s=int(dice.integers(0, 90_000)),
            )
            entries.append(SampleEntry(world.offset, world.log_ms, sample))
        for entry in entries:
            out += world.feed(entry)
        out += world.tick(0)
    assert of(out, "signals")
    return f"{hash_of(out)} {world.state.digest()}"


def hash_of(out: list[Any]) -> str:
    return hashlib.sha256(repr(said(out)).encode()).hexdigest()


@pytest.mark.parametrize(
    "features", ["AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR",
                 "AVX512F AVX512_SKX AVX2 FMA3 X86_V3 X86_V4", ""],
)  # fmt: skip
def test_r7_simd_dispatch_changes_nothing(features: str) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    if features:
        env["NPY_DISABLE_CPU_FEATURES"] = features
    answer = subprocess.run(
        [sys.executable, "-m", "tests.agents.test_fuzz"], env=env, cwd=ROOT, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    assert answer.stdout.strip() == story()


if __name__ == "__main__":
    sys.stdout.write(story() + "\n")
