"""What goes wrong: one small class of events each, chosen and timed by the seed alone.

A fault begins at a moment and ends at another; both are told in the story. `STORM` lists them all
with their weights; `draw` makes the timeline of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from schemas import codec
from schemas.records import Command
from tests.sim.kernel import GIB
from tests.sim.node import SimNode

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster

Event = tuple[int, int, str, Callable[[], None]]
"""When, a number that breaks ties, what is told, what is done."""
Events = Iterator[tuple[int, str, Callable[[], None]]]
Fault = Callable[["Cluster", Random, int], Events]
HOUR_MS = 3_600_000
ZEROS = (
    "cpu_usage_us", "memory_used_bytes", "cpu_busy_us", "be_cpu_usage_us",
    "memory_available_bytes", "memory_total_bytes",
)  # fmt: skip


def draw(cluster: Cluster, dice: Random) -> list[Event]:
    """The timeline of a run; every fault has ended when the storm has."""
    faults, weights = zip(*STORM, strict=True)
    events: list[Event] = []
    last_ms = cluster.plan.storm_ms
    for fault in dice.choices(faults, weights, k=cluster.plan.faults):
        begin_ms = dice.randrange(4_000, last_ms - 8_000)
        for at_ms, told, act in fault(cluster, dice, begin_ms):
            events.append((min(at_ms, last_ms), len(events), told, act))
    return sorted(events, key=lambda event: event[:2])


def mute(cluster: Cluster, dice: Random, at_ms: int) -> Events:
    node = dice.choice(cluster.nodes)
    what = dice.choice((("mute",), ("deaf",), ("mute", "deaf"), ("resend",), ("stubborn",)))

    def put(value: bool) -> None:
        for name in what:
            setattr(node.faults, name, value)

    yield at_ms, f"{node.name} {'+'.join(what)}", lambda: put(True)
    yield at_ms + dice.randrange(1_000, 9_000), f"{node.name} hears and speaks", lambda: put(False)


def counters(cluster: Cluster, dice: Random, at_ms: int) -> Events:
    node = dice.choice(cluster.nodes)
    names = frozenset(dice.sample(ZEROS, dice.randint(1, 2)))
    kind = dice.choice(("zero", "absent"))

    def act() -> None:
        setattr(node.faults, kind, names)
        cluster.check.unsettle(node)

    yield at_ms, f"{node.name} reads {kind}: {sorted(names)}", act


def agent_down(cluster: Cluster, dice: Random, at_ms: int) -> Events:
    node = dice.choice(cluster.nodes)
    reboot = dice.random() < 0.4

    def up() -> None:
        if node.agent is None:
            if reboot:
                node.kernel.boot()
            node.start()

    yield at_ms, f"{node.name} agent dies", node.crash
    told = f"{node.name} {'machine and ' if reboot else ''}agent start again"
    yield at_ms + dice.randrange(250, 6_000), told, up


def halt(cluster: Cluster, dice: Random, at_ms: int) -> Events:
    node, length_ms = dice.choice(cluster.nodes), dice.randrange(2_000, 12_000)
    began: list[int] = []

    def stop() -> None:
        if not node.halted:
            node.halted = True
            began.append(cluster.broker.now_ms)

    def go_on() -> None:
        if began:
            node.halted = False
            cluster.check.resumed(node, cluster.broker.now_ms - began.pop())

    yield at_ms, f"{node.name} halts, its clock too", stop
    yield at_ms + length_ms, f"{node.name} goes on", go_on


def wall_clock(cluster: Cluster, dice: Random, at_ms: int) -> Events:
    node, off_ms = dice.choice(cluster.nodes), dice.choice((-HOUR_MS, HOUR_MS))

    def put(value: int) -> None:
        node.faults.wall_offset_ms = value

    yield at_ms, f"{node.name} wall clock off by {off_ms} ms", lambda: put(off_ms)
    later, next_ms = dice.choice((-off_ms, 0)), at_ms + dice.randrange(1_000, 8_000)
    yield next_ms, f"{node.name} wall clock steps to {later} ms", lambda: put(later)


def outage(cluster: Cluster, dice: Random, at_ms: int) -> Events:
    def put(up: bool) -> None:
        cluster.broker.up = up

    yield at_ms, "broker away", lambda: put(False)
    yield at_ms + dice.randrange(1_000, 10_000), "broker back", lambda: put(True)


def worker_dies(cluster: Cluster, dice: Random, at_ms: int) -> Events:
    partition, torn = dice.randrange(cluster.plan.partitions), dice.random() < 0.3
    lost = dice.random() < 0.35

    def die() -> None:
        cluster.kill_owner(partition, torn=torn, lose_images=lost)

    told = f"owner of {partition} dies{', image torn' * torn}{', images lost' * lost}"
    yield at_ms, told, die
    yield at_ms + dice.randrange(2_000, 6_000), "rebalanced", cluster.rebalance


def zombie(cluster: Cluster, dice: Random, at_ms: int) -> Events:
    partition = dice.randrange(cluster.plan.partitions)
    yield at_ms, f"{partition} has two owners", lambda: cluster.make_zombie(partition)
    yield at_ms + dice.randrange(2_000, 12_000), "zombies notice", cluster.end_zombies


def slow_worker(cluster: Cluster, dice: Random, at_ms: int) -> Events:
    worker = dice.choice(cluster.workers)
    side_ms = dice.choice((0, 1_500, 4_000))

    def put(lagging: bool) -> None:
        worker.lagging = lagging and side_ms == 0
        worker.side.lag_ms = side_ms if lagging else 0

    yield at_ms, f"{worker.name} lags, side inputs {side_ms} ms", lambda: put(True)
    yield at_ms + dice.randrange(1_000, 7_000), f"{worker.name} lags no more", lambda: put(False)


def refused_output(cluster: Cluster, dice: Random, at_ms: int) -> Events:
    worker, after = dice.choice(cluster.workers), dice.randrange(6)

    def act() -> None:
        worker.fail_after = after

    yield at_ms, f"Kafka refuses {worker.name} after {after} outputs", act


def replayed(cluster: Cluster, dice: Random, at_ms: int) -> Events:
    """Commands that came before come again: now, late, in other order, twice."""
    node, count = dice.choice(cluster.nodes), dice.randint(1, 6)

    def act() -> None:
        held = list(node.spare)
        if not held or not cluster.broker.up:
            return
        for record in dice.choices(held, k=count):
            cluster.broker.append("commands", record.partition, record.key, record.value)

    for after_ms in (0, dice.randrange(500, 12_000)):
        yield at_ms + after_ms, f"{count} old commands come to {node.name} again", act


def forged(cluster: Cluster, dice: Random, at_ms: int) -> Events:
    """Well-formed commands that must have no effect."""
    node, kind = dice.choice(cluster.nodes), dice.choice(("incarnation", "empty", "online", "past"))

    def act() -> None:
        if not node.spare or not cluster.broker.up:
            return
        seen = codec.decode(Command, node.spare[-1].value or b"")
        head = cluster.broker.end("samples", node.partition) - 1
        number, now_ms = len(cluster.report.story), cluster.broker.now_ms
        said = forge(
            replace(seen, cause=replace(seen.cause, offset=head)), node, kind, number, now_ms
        )
        cluster.broker.append("commands", node.partition, node.key, codec.encode(said))

    yield at_ms, f"a command to {node.name} that must not work: {kind}", act


def forge(seen: Command, node: SimNode, kind: str, number: int, now_ms: int) -> Command:
    """A command made of one that was seen: no pods, an online pod, an older log, long expired."""
    evict = replace(
        seen, id=f"forged-{number}", decider="evict_memory", allow_milli=-1,
        expires_log_ms=now_ms + 30_000,
    )  # fmt: skip
    if kind == "empty":
        return evict
    if kind == "online":
        return replace(evict, pods=tuple(pod.uid for pod in node.kernel.of("online", "host")))
    raising = replace(seen, id=f"forged-{number}", decider="suppress", allow_milli=1_000_000)
    if kind == "past":
        return replace(raising, expires_log_ms=now_ms - 1)
    cause = replace(seen.cause, incarnation=seen.cause.incarnation - 1, offset=10**9)
    return replace(raising, cause=cause, expires_log_ms=now_ms + 30_000)


def malformed(cluster: Cluster, dice: Random, at_ms: int) -> Events:
    topic = dice.choice(("samples", "samples", "samples", "inventory", "acks", "commands"))
    partition, kind = dice.randrange(cluster.plan.partitions), dice.randrange(5)
    noise = dice.randbytes(dice.randrange(200))

    def act() -> None:
        if cluster.broker.up:
            cluster.bad_record(topic, partition, kind, noise)

    yield at_ms, f"a malformed record in {topic}/{partition}", act


def second_stage(cluster: Cluster, dice: Random, at_ms: int) -> Events:
    kind = dice.choice(("mute", "ill"))

    def put(value: bool) -> None:
        setattr(cluster.stage, kind, value)
        now_ms = cluster.broker.now_ms
        cluster.outputs.ill_since_ms = now_ms if value and kind == "ill" else None

    yield at_ms, f"second stage {kind}", lambda: put(True)
    yield at_ms + dice.randrange(3_000, 14_000), "second stage well", lambda: put(False)


def inventory(cluster: Cluster, dice: Random, at_ms: int) -> Events:
    node = dice.choice(cluster.nodes)
    if dice.random() < 0.4:

        def tombstone() -> None:
            if cluster.broker.up:
                cluster.broker.append("inventory", node.partition, node.key, None)

        yield at_ms, f"{node.name} inventory tombstone", tombstone
        return

    def empty() -> None:
        node.kernel.pods.clear()
        cluster.check.unsettle(node)

    yield at_ms, f"{node.name} has no pods", empty
    back = at_ms + dice.randrange(1_000, 6_000)
    yield back, f"{node.name} has pods again", lambda: cluster.populate(node)


def churn(cluster: Cluster, dice: Random, at_ms: int) -> Events:
    node = dice.choice(cluster.nodes)
    yield at_ms, f"{node.name} pods come and go", lambda: cluster.churn(node)


def policy(cluster: Cluster, dice: Random, at_ms: int) -> Events:
    if dice.random() < 0.3:
        text = dice.choice(("name: default\nsuppress: {threshold_percent: 900}\n", "{", "name: x"))
        yield at_ms, "a policy that must be refused", lambda: cluster.publish_policy(text)
        return
    threshold = dice.choice((45, 55, 75))
    text = cluster.plan.policy(threshold)
    yield at_ms, f"policy: threshold {threshold}", lambda: cluster.publish_policy(text)


def memory(cluster: Cluster, dice: Random, at_ms: int) -> Events:
    """Best-effort work fills the memory; what is left of it later gives it back."""
    node, percent = dice.choice(cluster.nodes), dice.randrange(60, 95)

    def surge() -> None:
        pods = list(node.kernel.of("best_effort"))
        for pod in pods:
            pod.used_bytes = node.kernel.memory_bytes * percent // 100 // len(pods)

    def back() -> None:
        for pod in node.kernel.of("best_effort"):
            pod.used_bytes = GIB // 2

    yield at_ms, f"{node.name} best effort takes {percent} % of memory", surge
    yield at_ms + dice.randrange(3_000, 15_000), f"{node.name} memory back", back


STORM: tuple[tuple[Fault, int], ...] = (
    (mute, 3), (counters, 3), (agent_down, 3), (halt, 2), (wall_clock, 2), (outage, 2),
    (worker_dies, 3), (zombie, 3), (slow_worker, 2), (refused_output, 2), (replayed, 3),
    (forged, 3), (malformed, 3), (second_stage, 2), (inventory, 2), (churn, 2), (policy, 2),
    (memory, 3),
)  # fmt: skip
