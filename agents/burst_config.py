"""Which burst holds for a pod: its node's policy, and its own wish laid over it.

Called by `agents.burst`. Law: `agents.isolation.cpu_burst.merge`. Where the node's policy is none,
no pod bursts, whatever it wishes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from agents import law
from agents.isolation import cpu_burst
from agents.isolation.cpu_burst import KERNEL_BURST, QUOTA_BURST, BurstConfig
from agents.table import Bools, Ints
from schemas.records import BurstWish

if TYPE_CHECKING:
    from agents.state import PartitionState

Wishes = tuple[tuple[int, BurstWish], ...]


@dataclass(frozen=True, slots=True)
class Configs:
    """What holds for each pod [n], its own wish laid over its node's policy."""

    kernel: Bools
    quota: Bools
    cpu_percent: Ints
    quota_percent: Ints
    period_s: Ints


def active(state: PartitionState, rows: Ints) -> Bools:
    """Nodes [n] whose policy lets pods burst."""
    if state.policy is None:
        return np.zeros(len(rows), dtype=np.bool_)
    return ~law.choice(state, rows, "cpu_burst.policy", "none")


def configs(state: PartitionState, rows: Ints, wishes: Sequence[Wishes], owner: Ints) -> Configs:
    """The configuration of each pod [n] of ``rows``, all their pods in order.

    ``wishes``: what the pods of each row say, by place.
    """

    def of(name: str) -> Ints:
        return law.column(state, rows, f"cpu_burst.{name}").take(owner)

    def among(policies: tuple[str, ...]) -> Bools:
        chosen = np.zeros(len(rows), dtype=np.bool_)
        for policy in policies:
            chosen |= law.choice(state, rows, "cpu_burst.policy", policy)
        return chosen.take(owner)

    found = Configs(
        among(KERNEL_BURST), among(QUOTA_BURST), of("cpu_burst_percent"),
        of("quota_burst_percent"), of("quota_burst_period_s"),
    )  # fmt: skip
    first = np.searchsorted(owner, np.arange(len(rows)))
    for at, said in enumerate(wishes):
        node = cpu_burst.config_of(law.of(state, int(rows[at])).cpu_burst)
        for place, wish in said:
            one = cpu_burst.merge(node, BurstConfig(**asdict(wish)))
            pod = int(first[at]) + place
            found.kernel[pod] = one.policy in KERNEL_BURST
            found.quota[pod] = one.policy in QUOTA_BURST
            for column, value in (
                (found.cpu_percent, one.cpu_burst_percent),
                (found.quota_percent, one.quota_burst_percent),
                (found.period_s, one.quota_burst_period_s),
            ):
                assert value is not None, "a node's policy says everything"
                column[pod] = value
    return found
