"""Records as workers, nodes and the bridge say them."""

from __future__ import annotations

from typing import Any

from schemas.records import Ack, Cause, Command, Decider, EvictionReport, Outcome

NODE = "n1"


def command(
    number: int, *pods: str, decider: Decider = "evict_cpu", node: str = NODE, **more: Any
) -> Command:
    cause = Cause(1, 0, number, number, "abc", 1)
    return Command(
        f"c{number}", node, decider, cause, number + 30_000, "cpu_starved", pods=pods, **more
    )


def ack(
    number: int, *pods: str, outcome: Outcome = "handed_over", decider: Decider = "evict_cpu",
    node: str = NODE, **more: Any,
) -> Ack:  # fmt: skip
    return Ack(node, "ab" * 16, 1, 0, decider, outcome, f"c{number}", 1, number, pods=pods, **more)


def report(number: int, pod: str, outcome: Any = "evicted", **more: Any) -> EvictionReport:
    return EvictionReport(
        NODE, pod, "evict_cpu", outcome, "accepted", command_id=f"c{number}", **more
    )
