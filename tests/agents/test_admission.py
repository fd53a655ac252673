"""Which samples are folded: boots, sequence numbers, clocks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.admission import CLOCK_LEAD_MS, RETIRED_KEPT
from agents.log import SampleEntry
from agents.state import PartitionState
from agents.step import step
from schemas import packed
from schemas.records import NodeSample
from tests.agents.worlds import WARM, Node, World, of, said

NEXT_BOOT = "b" * 32


def refused(world: World) -> list[str]:
    return [letter.reason for letter in of(world.out, "dead-letters")]


def frozen(world: World) -> dict[str, Any]:
    """What a refused sample must leave alone."""
    meta, arrays = world.state.to_arrays()
    return {
        "seats": meta["seats"],
        **{name: values.tobytes() for name, values in arrays.items()},
    }


def test_r4_the_same_sample_twice_is_folded_once() -> None:
    node = Node()
    world = World(WARM, node)
    world.say(node.sample())
    second = node.sample([2000, 1000])
    world.say(second)
    before = frozen(world)
    assert world.say(second, 50) == []
    assert frozen(world) == before
    assert world.state.counts["duplicate"] == 1


def test_an_older_seq_of_the_same_boot_is_a_duplicate_and_a_gap_is_counted() -> None:
    node = Node()
    world = World(WARM, node)
    early, late = node.sample(), [node.sample() for _ in range(4)][-1]
    world.say(late)
    world.say(early)
    assert world.state.counts["duplicate"] == 1
    node.seq += 7
    world.say(node.sample())
    assert world.state.counts["gap"] == 7


def test_r4_a_superseded_boot_is_never_accepted_again() -> None:
    node = Node()
    world = World(WARM, node)
    world.say(node.sample())
    old = node.boot
    node.boot, node.seq, node.mono_us = NEXT_BOOT, 0, 10_000_000
    world.say(node.sample())
    for _ in range(3):
        node.boot, node.mono_us = old, node.mono_us + 10**9
        before = frozen(world)
        world.say(node.sample())
        assert refused(world) == ["superseded_boot"]
        assert frozen(world) == before


def test_r12_remembered_boots_are_bounded() -> None:
    node = Node()
    world = World(WARM, node)
    for number in range(RETIRED_KEPT + 10):
        node.boot, node.seq = f"{number:032x}", 0
        world.say(node.sample())
    assert len(world.state.seats[b"n0"].retired) == RETIRED_KEPT


def test_a_new_boot_gives_a_rate_from_its_second_sample_only() -> None:
    node = Node()
    world = World(WARM, node)
    world.say(node.sample([1000, 500]))
    world.say(node.sample([1000, 500]))
    assert world.pods(node, "milli") == [1000, 500]
    node.boot, node.seq, node.busy_us = NEXT_BOOT, 0, 0
    node.cpu_us = [10**12, 10**12]
    out = world.say(node.sample([1000, 500], more={"cpu_usage_us": [10**12, 10**12]}))
    assert of(out, "commands") == []
    assert world.pods(node, "milli") == [1000, 500]  # the last value stands, no jump
    node.cpu_us = [10**12, 10**12]
    world.say(node.sample([300, 200]))
    assert world.pods(node, "milli") == [300, 200]


def test_r13_a_monotonic_clock_far_ahead_of_broker_time_is_refused() -> None:
    node = Node()
    world = World(WARM, node)
    world.say(node.sample())
    before = frozen(world)
    kept = node.mono_us
    node.mono_us += (CLOCK_LEAD_MS + 1) * 1000
    world.say(node.sample(), 1000)
    assert refused(world) == ["future_clock"]
    assert frozen(world) == before
    node.mono_us = kept + CLOCK_LEAD_MS * 1000  # exactly as far ahead as is forgiven
    world.say(node.sample(), 1000)
    assert refused(world) == []


@pytest.mark.parametrize("back_us", [0, 1, 10**6])
def test_r13_a_monotonic_clock_that_goes_back_within_a_boot_is_refused(back_us: int) -> None:
    node = Node()
    world = World(WARM, node)
    world.say(node.sample())
    before = frozen(world)
    node.mono_us -= 1_000_000 + back_us
    world.say(node.sample())
    assert refused(world) == ["backward_clock"]
    assert frozen(world) == before


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(-(2**62), 2**62), min_size=8, max_size=8))
def test_r13_the_wall_clock_never_decides(walls: list[int]) -> None:
    def told(wall_ms: list[int]) -> list[tuple[Any, ...]]:
        node = Node()
        world = World(WARM, node)
        out = list(world.out)
        for wall in wall_ms:
            out += world.say(node.sample([2000, 900], wall_ms=wall))
            out += world.tick()
        return said(out)

    assert told(walls) == told([0] * 8)


def test_r13_event_time_is_the_monotonic_clock_shifted_by_the_smallest_delay() -> None:
    node = Node()
    world = World(WARM, node)
    world.say(node.sample(), 3000)  # delayed by 3 s: event time is too late at first
    first = world.value(node, "event_ms")
    assert first == world.log_ms
    world.say(node.sample(), 0)  # and the next at once: the delay was 2 s at least... of mono 1 s
    assert world.value(node, "event_ms") == world.log_ms
    world.say(node.sample(), 4000)
    assert world.value(node, "event_ms") == world.log_ms - 3000


def test_a_node_name_that_is_no_text_is_dead_lettered() -> None:
    blank = NodeSample("x", "0" * 32, "0" * 32, 1, 1, 0, 1000, 0, 0)
    sample = packed.PackedSample(packed.encode(blank))
    sample.node = b"\xff\xfe"
    state = PartitionState(0, 1)
    (letter,) = of(step(state, [SampleEntry(0, 1, sample)]), "dead-letters")
    assert letter.reason == "broken_packed"
    assert state.seats == {}


def test_a_refused_sample_harms_no_neighbour() -> None:
    good, bad = Node("good"), Node("bad")
    world = World(WARM, good, bad)
    world.say(bad.sample())
    bad.mono_us -= 5_000_000
    batch = [
        SampleEntry(world.offset + 1, world.log_ms, good.sample()),
        SampleEntry(world.offset + 2, world.log_ms, bad.sample()),
    ]
    out = step(world.state, batch)
    assert [letter.reason for letter in of(out, "dead-letters")] == ["backward_clock"]
    assert world.state.seats[b"good"].seq == 1
