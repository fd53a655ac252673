"""A partition in the making: what tests of the law feed it, in one or two lines each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agents.log import LAW_VERSION, Entry, Output, SampleEntry, SideRecord, TickEntry
from agents.state import PartitionState
from agents.step import step
from schemas import codec, packed
from schemas.records import Inventory, NodeSample, PodFact, PolicyRecord, Tick

START_MS = 1_700_000_000_000
MONO_US = 50_000_000
CAPACITY_MILLI = 8000
MEMORY = 32 << 30
GIB = 1 << 30
PARTITION = 3
INCARNATION = 1
EXPAND = "rollout: {stage: expand}\n"
"""What the sections say is done; a policy without it only observes."""
BASE = "name: default\nreservation: {warm_ms: 0}\n"
WARM = BASE + EXPAND


def online(uid: str, **more: Any) -> PodFact:
    facts: dict[str, Any] = {
        "qos": "LS", "priority_class": "prod", "cpu_request_milli": 1000,
        "memory_request_bytes": GIB,
    }  # fmt: skip
    return PodFact(uid, uid, **(facts | more))


def best_effort(uid: str, **more: Any) -> PodFact:
    facts: dict[str, Any] = {"qos": "BE", "priority_class": "batch", "priority": 5500}
    return PodFact(uid, uid, **(facts | more))


@dataclass
class Node:
    """One node agent: its counters advance by the usage a test names, a second a sample."""

    name: str = "n0"
    pods: tuple[PodFact, ...] = (online("a"), best_effort("b"))
    rev: int = 1
    boot: str = "a" * 32
    seq: int = 0
    mono_us: int = MONO_US
    capacity: int = CAPACITY_MILLI
    memory: int = MEMORY
    busy_us: int = 0
    be_us: int = 0
    cpu_us: list[int] = field(default_factory=list)
    pressure_us: list[int] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)  # that its inventory always says

    def inventory(self, **more: Any) -> Inventory:
        said = {"pods": self.pods} | self.facts | more
        return Inventory(self.name, self.rev, self.capacity, self.memory, **said)

    def advance(self, milli: Sequence[int], system: int = 0, elapsed_ms: int = 1000) -> None:
        """Let time pass: each pod uses so many millicores, and the system some of its own."""
        self.cpu_us = (self.cpu_us + [0] * len(milli))[: len(milli)]
        for i, used in enumerate(milli):
            self.cpu_us[i] += used * elapsed_ms
            self.busy_us += used * elapsed_ms
            if i < len(self.pods) and self.pods[i].qos == "BE":
                self.be_us += used * elapsed_ms
        self.busy_us += system * elapsed_ms
        self.mono_us += elapsed_ms * 1000
        self.seq += 1

    def sample(
        self,
        milli: Sequence[int] | None = None,
        *,
        system: int = 0,
        elapsed_ms: int = 1000,
        quota: int | None = -1,
        available: int | None = 20 * GIB,
        used: Sequence[int | None] | None = None,
        pressure_us_per_s: int = 0,
        wall_ms: int = START_MS,
        drop: Sequence[str] = (),
        more: dict[str, Any] | None = None,
    ) -> packed.PackedSample:
        """The next sample, after ``elapsed_ms`` of the given usage."""
        milli = [1000] * len(self.pods) if milli is None else milli
        self.advance(milli, system, elapsed_ms)
        count = len(milli)
        self.pressure_us = (self.pressure_us + [0] * count)[:count]
        self.pressure_us = [p + pressure_us_per_s * elapsed_ms // 1000 for p in self.pressure_us]
        node: dict[str, int | None] = {
            "cpu_busy_us": self.busy_us, "memory_total_bytes": self.memory,
            "memory_available_bytes": available, "be_cpu_usage_us": self.be_us,
            "be_cpu_quota_milli": quota,
        }  # fmt: skip
        pods: dict[str, list[int | None]] = {
            "cpu_usage_us": list(self.cpu_us),
            "memory_used_bytes": list(used) if used is not None else [GIB] * count,
            "psi_cpu_some_us": list(self.pressure_us),
            "runq_wait_us": list(self.pressure_us),
        }
        for name in drop:
            node.pop(name, None)
            pods.pop(name, None)
        for name, value in (more or {}).items():
            (pods if isinstance(value, list) else node)[name] = value
        said = NodeSample(
            self.name, self.boot, "f" * 32, self.seq, self.mono_us, wall_ms, 1000, self.rev, count,
            node, pods,
        )  # fmt: skip
        return packed.PackedSample(packed.encode(said))


class World:
    """A state, its log so far, and the outputs of the last entry."""

    def __init__(self, policy: str | None = WARM, *nodes: Node) -> None:
        self.state = PartitionState(PARTITION, INCARNATION)
        self.offset = -1
        self.log_ms = START_MS
        self.side_offsets: dict[str, int] = {}
        self.log: list[Entry] = []
        self.out: list[Output] = []
        side: list[tuple[str, int, bytes, Any]] = []
        if policy is not None:
            side.append(("policies", 0, b"default", PolicyRecord("default", 1, "", policy)))
        side += [("inventory", PARTITION, n.name.encode(), n.inventory()) for n in nodes]
        self.tick(0, *side)

    def feed(self, entry: Entry) -> list[Output]:
        self.log.append(entry)
        self.out = step(self.state, [entry])
        return self.out

    def say(self, sample: packed.PackedSample, after_ms: int = 1000) -> list[Output]:
        """One sample, ``after_ms`` of broker time later."""
        self.log_ms += after_ms
        self.offset += 1
        return self.feed(SampleEntry(self.offset, self.log_ms, sample))

    def tick(
        self, after_ms: int = 0, *side: tuple[str, int, bytes, Any], **of: int
    ) -> list[Output]:
        """A tick, and the side records (topic, partition, key, record) that it admits."""
        self.log_ms += after_ms
        self.offset += 1
        records: list[SideRecord] = []
        for topic, partition, key, record in side:
            name = f"{topic}/{partition}"
            at = self.side_offsets[name] = self.side_offsets.get(name, -1) + 1
            records.append(SideRecord(topic, partition, at, key, record))
        said = Tick(
            of.get("partition", PARTITION),
            of.get("incarnation", INCARNATION),
            of.get("law_version", LAW_VERSION),
            dict(self.side_offsets),
        )
        return self.feed(TickEntry(self.offset, self.log_ms, said, tuple(records)))

    def know(self, node: Node, **more: Any) -> list[Output]:
        """Admit the node's inventory as it is now, by a tick that decides nothing else."""
        side = ("inventory", PARTITION, node.name.encode(), node.inventory(**more))
        return self.tick(0, side)

    def run(self, node: Node, seconds: int, **sample: Any) -> list[Output]:
        """So many seconds of samples and ticks; the outputs of all of them."""
        out: list[Output] = []
        for _ in range(seconds):
            out += self.say(node.sample(**sample))
            out += self.tick(0)
        return out

    def value(self, node: Node, column: str) -> Any:
        """A column of the node's row."""
        row = self.state.seats[node.name.encode()].row
        return self.state.nodes[column][row].tolist()

    def pods(self, node: Node, column: str) -> Any:
        """A pod column of the node, in pod order."""
        row = self.state.seats[node.name.encode()].row
        slots, _, _ = self.state.slots_of(np.array([row]))
        return self.state.pods[column][slots].tolist()


def of(outputs: Sequence[Output], topic: str, decider: str | None = None) -> list[Any]:
    """The records on a topic, leases left out."""
    return [
        output.record
        for output in outputs
        if output.topic == topic
        and output.decider != "lease"
        and (decider is None or output.decider == decider)
    ]


def said(outputs: Sequence[Output]) -> list[tuple[Any, ...]]:
    """Outputs as bytes, for equality."""
    return [(o.offset, o.node, o.decider, o.topic, o.key, codec.encode(o.record)) for o in outputs]
