"""Best-effort work bound to CPUs: which ones, how fast they grow, and what is never lent."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from agents.state import PartitionState
from schemas.records import Command, CpuTopology, PolicyRecord
from tests.agents.worlds import WARM, Node, World, best_effort, of, online, said

BY_SET = WARM + "suppress: {policy: cpuset, raise_permille: 125}\n"
TOPOLOGY = CpuTopology(
    tuple(range(8)), (0, 0, 1, 1, 2, 2, 3, 3), (0,) * 8, (0, 0, 0, 0, 1, 1, 1, 1)
)


def suppress(outputs: Any) -> list[Command]:
    return of(outputs, "commands", "suppress")


def world_of(node: Node, text: str = BY_SET, **facts: Any) -> World:
    world = World(text, node)
    world.know(node, **({"topology": TOPOLOGY} | facts))
    world.say(node.sample())
    return world


def used(world: World, node: Node, milli: list[int], after_ms: int = 1000) -> Command | None:
    """One more second of this usage; what was said of it."""
    found = suppress(world.say(node.sample(milli), after_ms))
    return found[0] if found else None


def policy(text: str) -> tuple[str, int, bytes, Any]:
    return "policies", 0, b"default", PolicyRecord("default", 2, "", text)


def test_the_allowance_becomes_whole_cpus_over_both_numa_nodes() -> None:
    node = Node()
    command = used(world_of(node), node, [1500, 0])
    assert command is not None
    assert command.allow_milli == 8000 * 65 // 100 - 1500
    assert command.cpus == (0, 1, 4, 5)
    assert command.terms["cpus"] == 4


def test_by_quota_or_beside_the_kubelet_s_sets_or_without_topology_no_cpus_are_named() -> None:
    static = {"capabilities": {"cpu_manager_static": True}}
    for text, facts in ((WARM, {}), (BY_SET, {"topology": None}), (BY_SET, static)):
        node = Node()
        command = used(world_of(node, text, **facts), node, [1500, 0])
        assert command is not None
        assert command.cpus == ()
        assert "cpus" not in command.terms


def test_a_broken_topology_is_not_believed() -> None:
    for broken in (
        CpuTopology((0, 1), (0,), (0, 0), (0, 0)),
        CpuTopology((0, 0), (0, 0), (0, 0), (0, 0)),
        CpuTopology((-1, 1), (0, 0), (0, 0), (0, 0)),
        CpuTopology((), (), (), ()),
    ):
        node = Node()
        command = used(world_of(node, topology=broken), node, [1500, 0])
        assert command is not None
        assert command.cpus == ()


def test_r2_down_at_once_up_one_bounded_step_a_tick_s_period() -> None:
    node = Node()
    world = world_of(node)
    used(world, node, [500, 0])
    low = used(world, node, [5000, 0])
    assert low is not None
    assert len(low.cpus) == 2
    sizes = [2]
    for _ in range(30):
        command = used(world, node, [500, 0], after_ms=500)
        sizes.append(sizes[-1] if command is None else len(command.cpus))
    steps = [after - before for before, after in pairwise(sizes)]
    assert sizes[-1] == 5
    assert max(steps) == 1  # an eighth of eight CPUs
    assert all(first + second <= 1 for first, second in pairwise(steps))


def test_exclusive_reserved_and_daemons_cpus_are_never_lent() -> None:
    node = Node(pods=(online("x", qos="LSE", cpus=(0, 1)), best_effort("b")))
    world = world_of(node, reserved_cpus="2", system_cpus="3")
    command = used(world, node, [500, 0])
    assert command is not None
    assert set(command.cpus) <= {4, 5, 6, 7}
    assert command.cpus


def test_an_lse_pod_that_comes_gets_its_cpus_at_the_next_sample() -> None:
    node = Node()
    world = world_of(node)
    before = used(world, node, [500, 0])
    assert before is not None
    assert 4 in before.cpus
    node.pods, node.rev = (*node.pods, online("x", qos="LSE", cpus=(4, 5))), 2
    world.know(node, topology=TOPOLOGY)
    after = used(world, node, [500, 0, 0])
    assert after is not None
    assert not {4, 5} & set(after.cpus)
    assert after.reason in ("other_cpus", "lower", "raise", "refresh")


def test_unchanged_nothing_is_said_but_for_the_refresh() -> None:
    node = Node()
    world = world_of(node)
    first = used(world, node, [1500, 0])
    again = [used(world, node, [1500, 0]) for _ in range(70)]
    found = [command for command in again if command is not None]
    assert first is not None
    assert [command.reason for command in found] == ["refresh"]
    assert found[0].cpus == first.cpus


def test_switched_back_to_quota_and_switched_off_the_set_is_lifted() -> None:
    for text in (WARM, WARM + "suppress: {policy: cpuset, enabled: false}\n"):
        node = Node()
        world = world_of(node)
        assert used(world, node, [1500, 0]) is not None
        world.tick(1000, policy(text))
        command = used(world, node, [1500, 0])
        assert command is not None
        assert command.cpus == ()
        assert world.state.seats[b"n0"].cpus == ()


def test_an_image_keeps_the_set() -> None:
    node = Node()
    world = world_of(node)
    used(world, node, [1500, 0])
    again = PartitionState.from_arrays(*world.state.to_arrays())
    assert again.seats[b"n0"].cpus == world.state.seats[b"n0"].cpus
    assert again.digest() == world.state.digest()


CPUS = st.sets(st.integers(0, 9), max_size=4)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 8000), CPUS, CPUS), min_size=1, max_size=6),
    st.permutations(range(8)),
    st.sampled_from(["", "0", "6-7"]),
)
@example([(2200, set(), set()), (0, set(), set()), (0, {0, 1, 4, 5}, set())], list(range(8)), "")
@example([(0, set(), set()), (0, set(range(8)), set())], list(range(8)), "")
def test_whatever_comes_nothing_of_others_is_lent(
    seconds: list[tuple[int, set[int], set[int]]], order: list[int], reserved: str
) -> None:
    columns = (TOPOLOGY.cpu, TOPOLOGY.core, TOPOLOGY.socket, TOPOLOGY.numa)
    shuffled = CpuTopology(*(tuple(column[at] for at in order) for column in columns))
    spoken = []
    for topology in (TOPOLOGY, TOPOLOGY, shuffled):
        node, out = Node(), []
        world = world_of(node, topology=topology, reserved_cpus=reserved)
        for milli, lse, lsr in seconds:
            owned = (
                online("e", qos="LSE", cpus=tuple(lse)),
                online("r", qos="LSR", cpus=tuple(lsr)),
            )
            node.pods, node.rev = (*node.pods[:2], *owned), node.rev + 1
            world.know(node, topology=topology, reserved_cpus=reserved)
            out += world.say(node.sample([milli, 0, 0, 0]))
            for command in suppress(world.out):
                barred = lse | {"0": {0}, "6-7": {6, 7}}.get(reserved, set())
                assert not barred & set(command.cpus)
                assert set(command.cpus) <= set(range(8))
                assert list(command.cpus) == sorted(set(command.cpus))
        spoken.append([line for line in said(out) if line[2] == "suppress"])
    assert spoken[0] == spoken[1] == spoken[2]
