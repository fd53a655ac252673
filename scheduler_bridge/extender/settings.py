"""What the operator sets of the extender, with allowed ranges. Read by the CLI and `service`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scheduler_bridge.http import HttpSettings
from scheduler_bridge.settings import (
    CPU_NAME,
    MEMORY_NAME,
    MID_CPU_NAME,
    MID_MEMORY_NAME,
    check_resource_names,
)

LOOPBACK = ("127.0.0.1", "::1", "localhost")
SCORE_ANNOTATION = "slackwater.io/load-score"


@dataclass(frozen=True, slots=True)
class Resources:
    """Names of the extended resources in this cluster; CPU is counted in thousandths."""

    batch_cpu: str = CPU_NAME
    batch_memory: str = MEMORY_NAME
    mid_cpu: str = MID_CPU_NAME
    mid_memory: str = MID_MEMORY_NAME

    def __post_init__(self) -> None:
        check_resource_names((self.batch_cpu, self.batch_memory, self.mid_cpu, self.mid_memory))

    @property
    def by_law(self) -> Mapping[str, str]:
        """From the names that `agents.placement.estimate` reads to those of this cluster."""
        return {
            "cpu": "cpu", "memory": "memory", "batch-cpu": self.batch_cpu,
            "batch-memory": self.batch_memory, "mid-cpu": self.mid_cpu,
            "mid-memory": self.mid_memory,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Annotating:
    """Scores as node annotations, for clusters without extenders: how often, and what counts."""

    writes_per_s: int = 5
    every_ms: int = 30_000  # of one node at most
    change: int = 10  # of 100: smaller changes are not written

    def __post_init__(self) -> None:
        for name, least, most in (
            ("writes_per_s", 1, 1000), ("every_ms", 1000, 3_600_000), ("change", 1, 100),
        ):  # fmt: skip
            value = getattr(self, name)
            if not least <= value <= most:
                raise ValueError(f"{name} is {value}; allowed: {least} to {most}")


@dataclass(frozen=True, slots=True)
class ExtenderSettings:
    """Where the broker is, where we answer, and how long doubt lasts.

    ``unsure_ms``: after so long a binding of which nothing was seen is asked for. ``scheduler``:
    under which name Kubernetes' own share stands in the ledger, which we count by the pods.
    ``annotating`` None: no node is annotated. ``patience_ms``: how long a pod that fits nowhere
    only for want of room waits for news: the scheduler hears of a pod's end when we do, and may
    ask first.
    """

    brokers: str
    prefix: str = "slackwater."
    http: HttpSettings = field(default_factory=HttpSettings)
    resources: Resources = field(default_factory=Resources)
    scheduler: str = "kubernetes"
    annotating: Annotating | None = None
    binds: bool = True  # whether `/bind` is answered at all
    stale_capacity_ms: int = 900_000
    patience_ms: int = 25
    unsure_ms: int = 30_000
    poll_ms: int = 100
    retry_max_s: float = 10.0

    def __post_init__(self) -> None:
        known = self.http.tls is not None and self.http.tls.client_ca is not None
        if self.binds and not known and self.http.host not in LOOPBACK:
            raise ValueError(
                f"on {self.http.host} anyone could have pods bound: ask clients for certificates "
                "(--client-ca), listen on 127.0.0.1, or bind nothing (--no-bind)"
            )
        for name, least, most in (
            ("unsure_ms", 1000, 600_000), ("stale_capacity_ms", 1000, 86_400_000),
            ("poll_ms", 10, 5000), ("patience_ms", 0, 500),
        ):  # fmt: skip
            value = getattr(self, name)
            if not least <= value <= most:
                raise ValueError(f"{name} is {value}; allowed: {least} to {most}")
