"""What `slackwater simulate` is told, with the allowed ranges. Read by the CLI and both loops."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

LOCAL_LAW_NODES = 100  # up to so many nodes decide for themselves too, unless told otherwise


@dataclass(frozen=True, slots=True)
class Settings:
    """``rate`` None: the closed loop; a number: load only, so many samples a second, 0 all it can.

    ``for_s`` and ``total`` end the run by itself.
    """

    brokers: str
    prefix: str = "slackwater."
    nodes: int = 50
    pods: int = 50
    period_ms: int = 1000
    speed: float = 1.0
    seed: int = 0
    trace: str = "azure"
    node_prefix: str = "sim"
    scheduling: bool = True
    local_law: bool | None = None
    floor_milli: int = 10
    state_dir: Path | None = None
    rate: int | None = None
    total: int | None = None
    for_s: float | None = None
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None
    keys: Path | None = None
    accept_unsigned: bool = False

    def __post_init__(self) -> None:
        if not self.brokers:
            raise ValueError("no broker given; set --brokers or SLACKWATER_BROKERS")
        if not 100 <= self.period_ms <= 3_600_000:
            raise ValueError(f"period of {self.period_ms} ms; allowed: 100ms to 1h")
        if not 0 < self.speed <= 100_000:
            raise ValueError(f"speed {self.speed}; allowed: above 0, to 100000")
        if self.rate is not None and self.rate < 0:
            raise ValueError(f"rate {self.rate}; allowed: 0 (all it can) and more")
        if self.total is not None and self.total < 1:
            raise ValueError(f"total {self.total}; allowed: 1 and more")
        if self.total is not None and self.rate is None:
            raise ValueError("a total needs a rate; add --rate N, or --rate 0 for all it can")

    @property
    def decides_itself(self) -> bool:
        """Whether the nodes ask their own law."""
        return self.nodes <= LOCAL_LAW_NODES if self.local_law is None else self.local_law
