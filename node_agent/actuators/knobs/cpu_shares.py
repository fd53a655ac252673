"""Share of the CPU against other groups: cpu.shares, or cpu.weight on its own scale.

An online pod's is only ever raised. The kernel refuses it for a group that has `cpu.idle`.
"""

from __future__ import annotations

from node_agent.actuators.number import Number, Numbers

LEAST, MOST = 2, 262_144  # shares that the kernel takes
WEIGHTS = 10_000  # of v2, from 1


class CpuShares(Numbers):
    """Settings speak of shares: 1024 is one CPU's worth."""

    name = "cpu_shares"
    turns = frozenset({"cpu_shares"})
    surface = "cpu"
    rows = (Number("cpu_shares", "cpu.shares", "cpu.weight", 1, MOST),)

    def converted(self, version: int, value: int) -> int:
        shares = min(max(value, LEAST), MOST)
        return shares if version == 1 else weight_of(shares)


def weight_of(shares: int) -> int:
    """cpu.weight for shares that the kernel takes, as runtimes convert it."""
    return 1 + (shares - LEAST) * (WEIGHTS - 1) // (MOST - LEAST)
