"""What the operator sets of the bridge, with the allowed ranges. Read by the CLI and the loop."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from scheduler_bridge.reconcile import Rules

CPU_NAME = "kubernetes.io/batch-cpu"
MEMORY_NAME = "kubernetes.io/batch-memory"
MID_CPU_NAME = "kubernetes.io/mid-cpu"
MID_MEMORY_NAME = "kubernetes.io/mid-memory"
_EXTENDED = re.compile(
    r"(?=[^/]{1,253}/)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
    r"/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)


@dataclass(frozen=True, slots=True)
class Settings:
    """Where the broker is, how fast patches may go out, and the manners of `Rules`."""

    brokers: str
    prefix: str = "slackwater."
    patches_per_s: int = 20
    patches_at_once: int = 32
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None
    rules: Rules = field(default_factory=Rules)
    poll_ms: int = 200
    retry_max_s: float = 10.0

    def __post_init__(self) -> None:
        if not 1 <= self.patches_per_s <= 10_000:
            raise ValueError(f"patches a second: {self.patches_per_s}; allowed: 1 to 10000")
        if not 1 <= self.patches_at_once <= 100:
            raise ValueError(f"patches at once: {self.patches_at_once}; allowed: 1 to 100")
        if not self.brokers:
            raise ValueError("no broker given; set --brokers or SLACKWATER_BROKERS")


def check_resource_names(names: Sequence[str]) -> None:
    """Raise ValueError unless each is a name that extended resources may have, and another.

    A node's own ``cpu`` and ``memory`` are the kubelet's to say, and have no slash.
    """
    for name in names:
        if not _EXTENDED.fullmatch(name) or name.startswith("requests."):
            raise ValueError(
                f"resource name {name!r:.100}: want one with a domain, such as {CPU_NAME}"
            )
    if len(set(names)) < len(names):
        raise ValueError(f"resource names {', '.join(names)}: each must be another")
