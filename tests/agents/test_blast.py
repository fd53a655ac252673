"""R5, bounded blast: whatever nodes say, so few pods of so few nodes are ordered out at a time.

Partitions decide by themselves, the second stage shares the budget of the fleet among them, as in
the live loop; facts travel with the next tick.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agents.fleet import Fleet, fleet_budget
from schemas.policy import parse
from schemas.records import Ack
from tests.agents.worlds import INCARNATION, MEMORY, PARTITION, Node, World, best_effort, of, online

COOLDOWN_MS = 20_000
RULES = """
name: default
rollout: {{stage: expand}}
reservation: {{warm_ms: 0}}
evict_memory: {{cooldown_ms: 20000}}
evict_cpu: {{enabled: true, window_ms: 3000, cooldown_ms: 20000}}
blast: {{evictions_permille: {permille}, facts_stale_ms: 3000}}
"""
QUOTA = 1000


@dataclass
class Blast:
    """A fleet whose nodes are all in one partition, and its orders: (log time, node, pods)."""

    world: World
    nodes: list[Node]
    fleet: Fleet
    text: str
    given: list[tuple[int, str, int]] = field(default_factory=list)
    unasked: list[tuple[int, str, int]] = field(default_factory=list)  # by the last gate alone
    facts: Any = None
    offset: int = 0

    def second(self, full: int, starved: int, *, stage_up: bool, refuse: bool, ill: bool) -> None:
        """One second: the bits of ``full`` and ``starved`` say which nodes are in need."""
        side = [("fleet", 0, b"fleet", self.facts)] if self.facts is not None else []
        if ill:
            self.world.state.nodes["ill"][:] = 1
        out = self.world.tick(1000, *side)
        self.facts = None
        for health in of(out, "fleet"):
            for partition in range(PARTITION + 1 if stage_up else 0):
                said = (
                    health if partition == PARTITION else replace(health, nodes=0, ill=0, silent=0)
                )
                self.offset += 1
                self.fleet.fold(partition, self.world.log_ms, self.offset, said)
                self.facts = self.fleet.facts(parse(self.text, "test"))
        acks: list[tuple[str, int, bytes, Any]] = []
        for place, node in enumerate(self.nodes):
            count = len(node.pods) - 1
            available = MEMORY // 10 if full >> place & 1 else MEMORY // 2
            milli = [1000, *[960 // count if starved >> place & 1 else 1] * count]
            self.world.say(node.sample(milli, quota=QUOTA, available=available), after_ms=0)
            for command in of(self.world.out, "commands"):
                if command.pods:
                    alone = command.reason.startswith("memory_full_fleet_unknown")
                    kept = self.unasked if alone else self.given
                    kept.append((self.world.log_ms, command.node, len(command.pods)))
                    if refuse:
                        ack = Ack(node.name, node.boot, 1, 1, command.decider, "refused")
                        acks.append(("acks", PARTITION, node.name.encode(), ack))
        if acks:
            self.world.tick(0, *acks)


def blast(nodes: int, permille: int) -> Blast:
    text = RULES.format(permille=permille)
    made = [
        Node(
            f"n{i:02}",
            (
                online(f"a{i}"),
                *(best_effort(f"b{i}-{k}", cpu_request_milli=1500) for k in range(4)),
            ),
        )
        for i in range(nodes)
    ]
    return Blast(World(text, *made), made, Fleet(PARTITION + 1, INCARNATION), text)


SECOND = st.tuples(
    st.integers(0, 255), st.integers(0, 255), st.booleans(), st.booleans(),
    st.sampled_from([False, False, False, True]),
)  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 8), st.sampled_from([1, 125, 250, 1000]),
    st.lists(st.tuples(st.integers(1, 9), SECOND), max_size=8),
)  # fmt: skip
def test_r5_bounded_blast(
    nodes: int, permille: int, spans: list[tuple[int, tuple[int, int, bool, bool, bool]]]
) -> None:
    """At most one order a node in 20 s, at most the fleet's share in that time, whoever asks."""
    fleet = blast(nodes, permille)
    for length, (full, starved, stage_up, refuse, ill) in spans:
        for _ in range(length):
            before = len(fleet.given)
            was_ill = fleet.facts is not None and fleet.facts.reason == "too_many_ill"
            fleet.second(full, starved, stage_up=stage_up, refuse=refuse, ill=ill)
            assert len(fleet.given) == before or not was_ill, (
                "most nodes are ill: suspect ourselves"
            )
    budget = fleet_budget(nodes, permille)
    for at_ms, _, _ in fleet.given:
        spent = sum(pods for ms, _, pods in fleet.given if at_ms <= ms < at_ms + COOLDOWN_MS)
        assert spent <= budget
    for node in fleet.nodes:
        times = [ms for ms, name, _ in sorted(fleet.given + fleet.unasked) if name == node.name]
        assert all(b - a >= COOLDOWN_MS for a, b in pairwise(times))
    assert all(pods == 1 for _, _, pods in fleet.unasked), "alone, a node knows of one pod"


def test_r5_the_property_sees_orders_of_both_deciders_and_of_the_last_gate() -> None:
    fleet = blast(8, 1000)
    for second in range(90):
        fleet.second(0b1 if second < 30 else 0, 0b10, stage_up=True, refuse=True, ill=False)
    assert {name for _, name, _ in fleet.given} == {"n00", "n01"}
    alone = blast(8, 1000)
    for _ in range(30):
        alone.second(0b1, 0, stage_up=False, refuse=False, ill=False)
    assert alone.unasked
    assert not alone.given


def test_r5_by_default_a_thousandth_of_the_fleet_and_a_stop_at_55_percent() -> None:
    policy = parse("name: default", "test")
    assert (policy.blast.evictions_permille, policy.blast.stop_ill_permille) == (1, 550)
    assert policy.evict_cpu.cooldown_ms == COOLDOWN_MS
    assert fleet_budget(10_000, policy.blast.evictions_permille) == 10
