"""A recorded log and its one digest: thirty nodes, five minutes, all that usually happens.

`python -m tests.determinism.recorded [--batch N]` folds it and prints one line of JSON: digest of
all output bytes, digest of the state, numpy's version and the CPU features it may use. The tests
run it in other surroundings and compare.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from agents.log import Entry, Output, SampleEntry
from agents.state import PartitionState
from agents.step import step
from schemas import codec
from schemas.records import CpuTopology, FleetFacts, LedgerEntry, PolicyRecord, Sli
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
)

SEED, NODES, SECONDS = 20_261, 30, 300
POLICY = WARM + "interference: {history_ms: 30000}\nloop: {report_ms: 5000}\n"
OTHER = (
    POLICY.replace("warm_ms: 0", "warm_ms: 0, short_model: predicted")
    + "suppress: {threshold_percent: 50, policy: cpuset}\n"
    + "cpu_burst: {policy: auto, quota_burst_period_s: 60}\n"
    + "memory_qos: {ls: {enabled: true, min_percent: 50}, be: {enabled: true}}\n"
    + "group_identity: {be: {enabled: true}, ls: {enabled: true}}\n"
    + "prediction: {enabled: true, cold_start_ms: 20000}\n"
    + "slo_guard: {step_wait_ms: 3000, calm_ms: 5000, objectives:"
    + " [{workload: shop/web, p99_us: 100000, errors_permille: 10, window_ms: 20000}]}\n"
)
THIRD = OTHER.replace("short_model: predicted", "short_model: newest")
WORKLOAD = "shop/web"
Side = tuple[str, int, bytes, Any]


@dataclass(frozen=True, slots=True)
class Folded:
    """What a fold of the log comes to."""

    outputs: int
    digest: str  # of all output bytes, in order
    state: str


def record() -> list[Entry]:
    """The log: the same entries on any machine."""
    dice = Random(SEED)
    nodes = [_node(dice, number) for number in range(NODES)]
    world = World(POLICY, *nodes)
    for second in range(SECONDS):
        for node in nodes:
            if dice.random() < 0.97:  # else it is lost
                _sample(world, node, dice)
        world.tick(dice.choice((0, 5, 40)), *_side(world, nodes, second, dice))
    return world.log


def _node(dice: Random, number: int) -> Node:
    pods = [
        online(
            f"n{number}-o{k}",
            cpu_request_milli=dice.randint(100, 4_000),
            cpu_limit_milli=5_000,
            workload=WORKLOAD,
        )
        for k in range(dice.randint(1, 12))
    ]
    pods += [best_effort(f"n{number}-b{k}") for k in range(dice.randint(0, 6))]
    capacity = dice.choice((4_000, 8_000, 64_000))
    cpus = tuple(range(capacity // 1_000))
    halves = tuple(cpu * 2 // len(cpus) for cpu in cpus)
    places = CpuTopology(cpus, tuple(cpu // 2 for cpu in cpus), halves, halves)
    return Node(f"n{number}", tuple(pods), capacity=capacity, facts={"topology": places})


def _sample(world: World, node: Node, dice: Random) -> None:
    """One sample; now and then a restart of the agent, a counter that begins anew, a gap."""
    chance = dice.random()
    if chance < 0.004:
        node.boot, node.seq = f"{dice.getrandbits(128):032x}", 0
    elif chance < 0.008:
        node.cpu_us = [0] * len(node.cpu_us)
    count = len(node.pods)
    sample = node.sample(
        [dice.randrange(node.capacity // (count + 1) + 1) for _ in range(count)],
        system=dice.randrange(400),
        elapsed_ms=dice.choice((1_000, 1_000, 1_000, 997, 1_013, 4_000)),
        quota=dice.choice((-1, None, dice.randrange(node.capacity))),
        available=dice.choice((20 * GIB, 20 * GIB, GIB, MEMORY // 2 + 12_345, None)),
        used=[dice.choice((GIB, 3 * GIB + 17, None)) for _ in range(count)],
        pressure_us_per_s=dice.choice((0, 1_000, 5_000, dice.randrange(900_000))),
        more={"cpu_throttled_us": [dice.randrange(10**9) for _ in range(count)]},
    )
    world.say(sample, dice.choice((20, 30, 40, 50)))
    if chance > 0.995:
        again = world.log[-1]
        assert isinstance(again, SampleEntry)
        world.say(again.sample, 1)  # the producer's retry


def _side(world: World, nodes: Sequence[Node], second: int, dice: Random) -> Iterator[Side]:
    """Inventory, ledger and fleet facts as they come, and two changes of policy."""
    changes = {SECONDS // 2: (2, OTHER), SECONDS * 3 // 4: (3, THIRD)}
    if second in changes:
        version, text = changes[second]
        yield "policies", 0, b"default", PolicyRecord("default", version, "", text)
    if dice.random() < 0.2:
        node = dice.choice(nodes)
        made = dice.choice((online, best_effort))(f"{node.name}-x{second}")
        node.pods, node.cpu_us = (*node.pods[1:], made), [*node.cpu_us[1:], 0]
        node.rev += 1
        yield "inventory", PARTITION, node.name.encode(), node.inventory()
    if dice.random() < 0.2:
        node = dice.choice(nodes)
        lent = LedgerEntry(node.name, "yarn", dice.randrange(4_000), dice.randrange(8 * GIB))
        yield "ledger", PARTITION, node.name.encode(), lent
    p99_us = 150_000 if second % 40 < 20 else 20_000
    for node in nodes[:12]:
        if dice.random() < 0.7:
            said = Sli(WORKLOAD, node.name, 5_000, 0, p99_us, 1_000, dice.choice((0, 0, 11)))
            yield "slis", PARTITION, node.name.encode(), said
    if second % 3 == 0:
        facts = FleetFacts(second, 1, NODES, 0, 0, 0, dice.randrange(3), 10_000)
        yield "fleet", 0, b"fleet", facts


def fold(log: Sequence[Entry], batch: int) -> Folded:
    """Fold the log in batches of ``batch`` entries."""
    state = PartitionState(PARTITION, INCARNATION)
    whole, count = hashlib.sha256(), 0
    for begin in range(0, len(log), batch):
        for output in step(state, log[begin : begin + batch]):
            whole.update(_bytes(output))
            count += 1
    return Folded(count, whole.hexdigest(), state.digest())


def _bytes(output: Output) -> bytes:
    place = f"{output.offset}\n{output.node}\n{output.decider}\n{output.topic}\n".encode()
    return place + output.key + b"\n" + codec.encode(output.record) + b"\n"


def cpu_features() -> list[str]:
    """Those that numpy chooses at run time on this CPU; the baseline cannot be switched off."""
    umath = sys.modules.get("numpy._core._multiarray_umath") or sys.modules.get(
        "numpy.core._multiarray_umath"
    )
    assert umath is not None, "numpy has moved its umath module"
    has = umath.__cpu_features__
    return [name for name in umath.__cpu_dispatch__ if has[name]]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.determinism.recorded")
    parser.add_argument("--batch", type=int, default=1_000)
    folded = fold(record(), parser.parse_args().batch)
    said = {
        "outputs": folded.outputs, "digest": folded.digest, "state": folded.state,
        "numpy": np.__version__, "cpu_features": cpu_features(),
    }  # fmt: skip
    print(json.dumps(said))


if __name__ == "__main__":
    main()
