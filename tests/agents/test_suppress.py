"""CPU of best-effort work: the sum, its manners, and what it does without knowledge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.allowance import adjust
from schemas.records import Command, PolicyRecord
from tests.agents.worlds import CAPACITY_MILLI, EXPAND, WARM, Node, World, best_effort, of, online

SHARE = CAPACITY_MILLI * 65 // 100


def suppress(world: World) -> list[Command]:
    return of(world.out, "commands", "suppress")


def settled(node: Node, milli: list[int], **sample: Any) -> World:
    """A world whose node has said two samples, the second with a rate."""
    world = World(WARM, node)
    world.say(node.sample(milli, **sample))
    world.say(node.sample(milli, **sample))
    return world


def test_the_sum_and_its_terms() -> None:
    node = Node(pods=(online("a"), best_effort("b"), online("h", host_app=True)))
    world = settled(node, [1500, 700, 200], system=300)
    (command,) = suppress(world)
    assert command.allow_milli == SHARE - 1500 - 200 - 300
    assert command.terms["online"] == 1500
    assert command.terms["system"] == 300
    assert command.id == f"1.3.{world.offset}.n0.suppress"
    assert command.expires_log_ms == world.log_ms + 30_000
    assert (command.cause.offset, command.cause.log_ms) == (world.offset, world.log_ms)


def test_reserved_and_system_are_the_larger_not_the_sum() -> None:
    node = Node()
    world = World(WARM)
    world.know(node, cpu_allocatable_milli=CAPACITY_MILLI - 500, cpu_reserved_milli=400)
    world.run(node, 1, milli=[1000, 0], system=300)
    world.say(node.sample([1000, 0], system=300))
    assert suppress(world)[0].allow_milli == SHARE - 1000 - 500


def test_a_decision_record_stands_beside_every_command() -> None:
    world = settled(Node(), [1500, 700])
    (command,), (line,) = suppress(world), of(world.out, "decisions", "suppress")
    assert line.command_ids == (command.id,)
    assert line.nodes == ("n0",)
    assert line.cause == command.cause
    assert {name: values[0] for name, values in line.columns.items()} == command.terms
    assert [o.key for o in world.out if o.topic == "decisions"] == [b"n0"]


def test_no_command_without_a_rate_of_the_node() -> None:
    node = Node()
    world = World(WARM, node)
    world.say(node.sample())
    assert suppress(world) == []
    world.say(node.sample(drop=["cpu_busy_us"]))
    assert suppress(world) == []


def test_r2_down_at_once_up_in_bounded_steps() -> None:
    node = Node()
    world = settled(node, [500, 0])
    quota = suppress(world)[0].allow_milli
    assert quota == SHARE - 500
    world.say(node.sample([5000, 0], quota=quota))
    low = suppress(world)[0].allow_milli
    assert low == SHARE - 5000
    steps: list[int] = []
    while low < quota and len(steps) < 50:
        world.say(node.sample([500, 0], quota=low))
        (command,) = suppress(world)
        steps.append(command.allow_milli - low)
        low = command.allow_milli
    assert low == quota
    assert max(steps) == CAPACITY_MILLI // 10
    assert len(steps) >= 5


def test_from_no_quota_the_bound_comes_at_once_however_small() -> None:
    node = Node()
    world = settled(node, [SHARE - 30, 0])
    assert suppress(world)[0].allow_milli == 30


def test_below_zero_the_floor_holds_and_the_floor_is_never_ignored() -> None:
    node = Node()
    world = settled(node, [7000, 500], quota=40)
    (command,) = suppress(world)
    assert (command.allow_milli, command.terms["floor"]) == (10, 10)


def test_small_changes_are_not_said_and_refresh_says_again() -> None:
    node = Node()
    world = settled(node, [1000, 0])
    quota = suppress(world)[0].allow_milli
    for second in range(1, 60):
        world.say(node.sample([1000 + second % 2 * 70, 0], quota=quota))
        assert suppress(world) == []
    world.say(node.sample([1000, 0], quota=quota))
    assert [command.reason for command in suppress(world)] == ["refresh"]


def test_a_command_that_never_came_is_said_again_after_a_report_period() -> None:
    node = Node()
    world = settled(node, [1000, 0])
    quota = suppress(world)[0].allow_milli
    said_after = []
    for second in range(1, 22):
        world.say(node.sample([1000, 0], quota=-1))
        if suppress(world):
            assert suppress(world)[0].allow_milli == quota
            said_after.append(second)
    assert said_after == [10, 20]


def test_r3_an_unknown_pod_set_counts_all_but_the_best_effort_root_as_online() -> None:
    node = Node()
    world = World(WARM, node)
    world.say(node.sample([1000, 700], system=300))
    node.rev = 9
    world.say(node.sample([1000, 700], system=300))
    (command,) = suppress(world)
    assert command.terms["online"] == 1300
    assert command.allow_milli == SHARE - 1300


def test_r3_an_unknown_pod_set_and_no_best_effort_figure_count_all_as_online() -> None:
    node = Node()
    world = World(WARM, node)
    world.say(node.sample([1000, 700], drop=["be_cpu_usage_us"]))
    node.rev = 9
    world.say(node.sample([1000, 700], drop=["be_cpu_usage_us"]))
    assert suppress(world)[0].allow_milli == SHARE - 1700


def test_without_a_policy_best_effort_is_at_its_floor() -> None:
    node = Node()
    world = World(None, node)
    world.say(node.sample([100, 100]))
    (command,) = suppress(world)
    assert (command.allow_milli, command.reason, command.cause.policy) == (10, "no_policy", "")


def test_a_node_without_inventory_gets_no_command() -> None:
    node = Node()
    world = World(WARM)
    world.run(node, 3)
    assert suppress(world) == []


def test_a_policy_that_disables_lifts_the_bound_once() -> None:
    node = Node()
    world = settled(node, [4000, 0])
    off = PolicyRecord("default", 2, "", EXPAND + "suppress: {enabled: false}\n")
    world.tick(1000, ("policies", 0, b"default", off))
    world.say(node.sample([4000, 0]))
    assert [(c.allow_milli, c.reason) for c in suppress(world)] == [(CAPACITY_MILLI, "disabled")]
    for _ in range(100):
        world.say(node.sample([4000, 0]))
        assert suppress(world) == []


@given(
    st.integers(1, 100_000), st.integers(-50_000, 100_000), st.integers(-1, 100_000),
    st.integers(0, 200), st.integers(0, 50), st.integers(1, 300),
)  # fmt: skip
def test_r2_adjust_properties(
    capacity: int, wanted: int, in_force: int, floor: int, ignore: int, step: int
) -> None:
    (target,) = adjust(
        np.array([capacity]), np.array([wanted]), np.array([in_force]), np.array([floor]),
        ignore, step,
    ).tolist()  # fmt: skip
    goal = max(wanted, floor)
    if in_force < 0:
        assert target == goal
        return
    assert target <= in_force + capacity * step // 1000 or target == in_force
    small = abs(goal - in_force) * 1000 < capacity * ignore
    if goal < in_force and not small:
        assert target == goal, "lowering is never delayed"
    if goal == floor and in_force >= floor:
        assert target == floor, "the floor is never ignored"
    if not small and goal > in_force:
        assert target > in_force or capacity * step < 1000


@pytest.mark.parametrize("tick", [True, False])
def test_r4_a_tick_alone_gives_no_command(tick: bool) -> None:
    world = settled(Node(), [1000, 0])
    if tick:
        world.tick(1000)
        assert suppress(world) == []
    else:
        assert len(suppress(world)) == 1
