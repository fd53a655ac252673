"""Recordings made by hand: one node after the other, a sample a minute, sums known beforehand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.log import LAW_VERSION
from schemas import codec, packed
from schemas.records import (
    Capacity,
    Cause,
    Inventory,
    Job,
    LedgerEntry,
    NodeSample,
    PodFact,
    PolicyRecord,
    Sli,
)
from schemas.topics import BY_NAME, PREFIX
from streams.recording.manifest import Manifest
from streams.recording.pack import Place, pack
from streams.recording.segment import Consumed, Record

T0 = 1_790_000_040_000  # the beginning of a minute
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
MINUTE_US = 60_000_000
GIB = 1 << 30
BOOT = "ab" * 16
WEB = "shop/web"
POLICY = """
rollout: {stage: pilot}
control_group: {group: control}
slo_guard:
  objectives: [{workload: shop/web, p99_us: 100000, rounds: 1, window_ms: 3600000}]
"""
PRICES = """
currency: EUR
machine_per_core_hour: 0.18
machine_per_gib_hour: 0
energy_per_core_hour: 0.02
beyond_objective_per_hour: 5
failed_request: 0
batch_retry: 1
platform_per_day: 72
platform_per_node_day: 0
"""


@dataclass
class Case:
    """Records by topic in the order they are said; partition 0 but where told."""

    said: list[tuple[int, str, bytes | None, Any]] = field(default_factory=list)
    seq: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def say(self, at_ms: int, topic: str, key: str, record: Any) -> None:
        """A record; ``at_ms`` counts from the beginning. None is a tombstone."""
        self.said.append((T0 + at_ms, topic, key.encode(), record))

    def policy(self, text: str = POLICY, at_ms: int = 0, version: int = 1) -> None:
        self.say(at_ms, "policies", "default", PolicyRecord("default", version, "", text))

    def node(
        self, name: str, pods: Iterable[PodFact] = (), at_ms: int = 0, cores: int = 128,
        **labels: str,
    ) -> None:  # fmt: skip
        said = Inventory(name, 1, cores * 1000, 256 * GIB, labels=labels, pods=tuple(pods))
        self.say(at_ms, "inventory", name, said)

    def capacity(self, name: str, cores: int, at_ms: int = 0, **more: Any) -> None:
        cause = Cause(1, 0, 0, T0 + at_ms, "", LAW_VERSION)
        said = Capacity(
            name, cause, cores * 1000, 0, "first", computed_cpu_milli=cores * 1000, **more
        )
        self.say(at_ms, "capacity", name, said)

    def lent(self, name: str, cores: int, at_ms: int = 0, scheduler: str = "kubernetes") -> None:
        said = LedgerEntry(name, scheduler, cores * 1000, 0)
        self.say(at_ms, "ledger", f"{name}/{scheduler}", said)

    def sample(
        self, name: str, at_ms: int, node: dict[str, int | None] | None = None,
        pods: dict[str, list[int | None]] | None = None, count: int = 0, boot: str = BOOT,
    ) -> None:  # fmt: skip
        self.seq[name] += 1
        said = NodeSample(
            name, boot, boot, self.seq[name], 1_000_000_000 + at_ms * 1000, T0 + at_ms, MINUTE_MS,
            1, count, node or {}, pods or {},
        )  # fmt: skip
        self.say(at_ms, "samples", name, said)

    def sli(
        self, name: str, at_ms: int, p99_us: int = 50_000, requests: int = 1000, **more: Any
    ) -> None:
        said = Sli(WEB, name, more.pop("window_ms", HOUR_MS), 2_000, p99_us, requests, **more)
        self.say(at_ms, "slis", name, said)

    def job(
        self, at_ms: int, job: str, node: str, state: Any, permille: int = 0, **more: Any
    ) -> None:
        self.say(at_ms, "jobs", job, Job(job, node, state, permille, **more))

    def places(self) -> dict[Place, list[Consumed]]:
        """What a broker would hold."""
        found: dict[Place, list[Consumed]] = defaultdict(list)
        for at_ms, topic, key, record in sorted(self.said, key=lambda one: one[0]):
            here = found[topic, 0]
            raw, headers = encoded(record)
            here.append(Record(topic, 0, len(here), at_ms, key, raw, tuple(headers)))
        return found

    def bundle(self, path: Path) -> Path:
        """As a file that `slackwater account` opens."""
        manifest = Manifest(
            kind="bundle", prefix=PREFIX, incarnation=1, partitions=1, software="test",
            schema_version=codec.VERSION, made_ms=T0,
        )  # fmt: skip
        pack(path, manifest, self.places())
        return path


def encoded(record: Any) -> tuple[bytes | None, codec.Headers]:
    """Value and headers as producers send them."""
    if record is None:
        return None, codec.JSON_HEADERS
    if isinstance(record, NodeSample):
        return packed.encode(record), codec.PACKED_HEADERS
    return codec.encode(record), codec.JSON_HEADERS


def batch_pod(uid: str, cores: int = 4, workload: str = "batch/etl", **more: Any) -> PodFact:
    return PodFact(
        uid, uid, "batch", workload, "BE", "batch", cpu_request_milli=cores * 1000, **more
    )


TOPICS = tuple(BY_NAME)


def ten_hours() -> Case:
    """Predicted 1,000, lent 800, used 600 core-hours; 3 hours beyond; 10 retries; a starved pod.

    n1 co-locates, n2 is its control; pod ``slow`` asks for 4 cores, gets them, and 0.02 in the
    minute after the first hour.
    """
    case = Case()
    case.policy()
    case.node("n1", [batch_pod("slow"), batch_pod("fast", 60)], pool="a")
    case.node("n2", pool="a", group="control")
    case.capacity("n1", 100)
    case.lent("n1", 80)
    slow_us = root_us = 0
    for minute in range(601):
        at_ms = minute * MINUTE_MS
        columns: dict[str, list[int | None]] = {"cpu_usage_us": [slow_us, root_us - slow_us]}
        case.sample(
            "n1", at_ms, {"be_cpu_usage_us": root_us, "cpu_busy_us": 2 * root_us}, columns, 2
        )
        case.sample("n2", at_ms, {"cpu_busy_us": root_us})
        slow_us += MINUTE_US // 50 if minute == 60 else 4 * MINUTE_US
        root_us += 60 * MINUTE_US
    for hour in range(1, 11):
        case.sli("n1", hour * HOUR_MS, 150_000 if hour in (2, 5, 8) else 50_000)
        case.sli("n2", hour * HOUR_MS, 40_000)
    case.job(0, "etl-1", "", "queued")
    case.job(90_000, "etl-1", "n1", "running")
    case.job(5 * HOUR_MS, "etl-1", "n1", "running", 400, retries=10)
    case.job(9 * HOUR_MS, "etl-1", "n1", "done", 1000, retries=10)
    return case
