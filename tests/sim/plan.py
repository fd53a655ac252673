"""The shape of one run, drawn from its seed: sizes, times, policy. All times are log time in ms."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

QUANTUM_MS = 250
QUIET_MS = 20_000
WHOLE_WITHIN_MS = 15_000

POLICY = """
name: default
rollout: {{stage: expand}}
loop: {{tick_ms: 1000, command_ttl_ms: {ttl_ms}, silent_after_ms: 3000, withdraw_after_ms: 12000,
  report_ms: 5000, refresh_ms: {refresh_ms}}}
suppress: {{threshold_percent: {threshold}}}
eviction: {{grace_ms: 2000}}
evict_memory: {{threshold_percent: 70, lower_percent: 68, cooldown_ms: 4000}}
capacity: {{refresh_ms: 5000, raise_permille_per_min: 6000}}
reservation: {{warm_ms: 4000}}
interference: {{history_ms: 20000}}
blast: {{facts_stale_ms: 5000}}
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """``storm_ms``: when the last fault ends; then `QUIET_MS` of calm."""

    nodes: int
    partitions: int
    workers: int
    storm_ms: int
    faults: int
    ttl_ms: int
    lookback_ms: int
    image_every_ms: int

    @property
    def end_ms(self) -> int:
        return self.storm_ms + QUIET_MS

    def policy(self, threshold: int) -> str:
        """The policy's text; only the suppress threshold changes during a run."""
        return POLICY.format(ttl_ms=self.ttl_ms, threshold=threshold, refresh_ms=60_000)


def draw(dice: Random) -> Plan:
    """A small cluster and a short storm."""
    partitions = dice.choice((1, 2, 2, 3))
    return Plan(
        nodes=dice.randint(partitions, 4),
        partitions=partitions,
        workers=dice.choice((2, 2, 3)),
        storm_ms=dice.randrange(20_000, 35_000, QUANTUM_MS),
        faults=dice.randint(4, 12),
        ttl_ms=dice.choice((4_000, 8_000, 30_000)),
        lookback_ms=dice.choice((8_000, 600_000)),
        image_every_ms=dice.choice((2_000, 5_000)),
    )
