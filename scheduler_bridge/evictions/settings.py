"""What the operator sets of the evictor, with the allowed ranges. Read by the CLI and the loop."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from scheduler_bridge.evictions.budget import Limits

LEASE = "slackwater-evictor"


@dataclass(frozen=True, slots=True)
class EvictorSettings:
    """Where broker and API server are, how fast pods may go, and how long one is tried.

    ``expire_ms`` is best what nodes wait for a pod that they handed over, one minute.
    """

    brokers: str
    prefix: str = "slackwater."
    kubeconfig: Path | None = None
    context: str | None = None
    lease_namespace: str = ""  # "": the namespace of the account
    keys: Path | None = None
    per_s: int = 10
    limits: Limits = field(default_factory=Limits)
    expire_ms: int = 60_000
    grace_s: int | None = None
    dry_run: bool = False
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None
    poll_ms: int = 100
    retry_max_s: float = 10.0

    def __post_init__(self) -> None:
        if not self.brokers:
            raise ValueError("no broker given; set --brokers or SLACKWATER_BROKERS")
        if not 1 <= self.per_s <= 1000:
            raise ValueError(f"evictions a second: {self.per_s}; allowed: 1 to 1000")
        if not 5_000 <= self.expire_ms <= 3_600_000:
            raise ValueError(f"expire_ms is {self.expire_ms}; allowed: 5000 to 3600000")
        if self.grace_s is not None and not 1 <= self.grace_s <= 3600:
            raise ValueError(f"grace_s is {self.grace_s}; allowed: 1 to 3600")

    @property
    def history_s(self) -> int:
        """How far back the logs are read at the start: all that may still be pending, twice."""
        return max(600, 2 * max(self.expire_ms, self.limits.window_ms) // 1000)
