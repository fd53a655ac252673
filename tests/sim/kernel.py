"""The fake kernel of one node: who wants what, who gets what, counters, memory, quota, kills.

It is the truth of a run. Nodes read its counters and write its quota; the checks read its truth.
Amounts are millicores, bytes and microseconds; time moves by `advance` alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from schemas.records import PodFact

GIB = 1 << 30
UNLIMITED = -1
SYSTEM_BYTES = 1 * GIB
LEFT_PERMILLE = 10
Kind = Literal["online", "host", "best_effort"]


@dataclass(slots=True)
class FakePod:
    """One group of processes. ``used_us`` and its kin are its kernel counters."""

    uid: str
    kind: Kind
    want_milli: int
    used_bytes: int
    request_milli: int = 0
    used_us: int = 0
    stalled_us: int = 0
    got_milli: int = 0

    def fact(self) -> PodFact:
        """What the inventory says of it."""
        if self.kind == "best_effort":
            return PodFact(self.uid, self.uid, qos="BE", priority_class="batch", priority=5500)
        return PodFact(
            self.uid, self.uid, qos="LS", priority_class="prod",
            cpu_request_milli=self.request_milli, memory_request_bytes=self.used_bytes,
            host_app=self.kind == "host", workload=f"sim/{self.kind}",
        )  # fmt: skip


@dataclass(slots=True)
class Kernel:
    """One machine. ``quota_milli`` bounds all best-effort pods together; -1: no bound."""

    name: str
    cpu_milli: int
    memory_bytes: int
    dice: Random
    system_milli: int = 100
    boot_id: str = ""
    mono_us: int = 0
    quota_milli: int = UNLIMITED
    busy_us: int = 0
    best_effort_us: int = 0
    pods: dict[str, FakePod] = field(default_factory=dict)
    killed: list[tuple[str, Kind]] = field(default_factory=list)
    _made: int = 0

    def boot(self) -> None:
        """A fresh start of the machine: monotonic time, counters and quota begin anew."""
        self.boot_id = f"{self.dice.getrandbits(128):032x}"
        self.mono_us = self.dice.randrange(5_000_000)
        self.busy_us = self.best_effort_us = 0
        self.quota_milli = UNLIMITED
        for pod in self.pods.values():
            pod.used_us = pod.stalled_us = 0

    def place(self, kind: Kind, want_milli: int, used_bytes: int) -> FakePod:
        """Start a pod; its uid is used once."""
        self._made += 1
        uid = f"{self.name}-{kind}-{self._made}"
        pod = FakePod(uid, kind, want_milli, used_bytes, request_milli=want_milli)
        self.pods[uid] = pod
        return pod

    def of(self, *kinds: Kind) -> Iterator[FakePod]:
        """Pods of these kinds."""
        return (pod for pod in self.pods.values() if pod.kind in kinds)

    def kill(self, uid: str) -> bool:
        """Kill what is in a group; whether it was there."""
        pod = self.pods.pop(uid, None)
        if pod is not None:
            self.killed.append((uid, pod.kind))
        return pod is not None

    def advance(self, elapsed_ms: int) -> None:
        """Let time pass. Online work goes first; best effort gets what quota and room allow."""
        self.mono_us += elapsed_ms * 1000
        room = self.cpu_milli - self.system_milli
        for pod in self.of("online", "host"):
            pod.got_milli = min(pod.want_milli, room)
            room -= pod.got_milli
        wanted = sum(pod.want_milli for pod in self.of("best_effort"))
        allowed = wanted if self.quota_milli < 0 else min(wanted, self.quota_milli)
        allowed = min(allowed, max(room, self.cpu_milli * LEFT_PERMILLE // 1000))
        for pod in self.of("best_effort"):
            pod.got_milli = allowed * pod.want_milli // max(wanted, 1)
            pod.stalled_us += (pod.want_milli - pod.got_milli) * elapsed_ms // 10
        for pod in self.pods.values():
            pod.used_us += pod.got_milli * elapsed_ms
        self.best_effort_us += self.best_effort_milli * elapsed_ms
        self.busy_us += (self.busy_milli) * elapsed_ms

    @property
    def busy_milli(self) -> int:
        """What everybody really uses."""
        return self.system_milli + sum(pod.got_milli for pod in self.pods.values())

    @property
    def best_effort_milli(self) -> int:
        """What best-effort work really uses."""
        return sum(pod.got_milli for pod in self.of("best_effort"))

    @property
    def available_bytes(self) -> int:
        """MemAvailable."""
        used = SYSTEM_BYTES + sum(pod.used_bytes for pod in self.pods.values())
        return max(self.memory_bytes - used, self.memory_bytes // 1000)
