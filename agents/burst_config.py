"""Which burst holds for a pod: its node's policy, and its own wish laid over it.

Called by `agents.burst`. Law: `agents.isolation.cpu_burst.merge`. Where the node's policy is none,
no pod bursts, whatever it wishes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from agents import law
from agents.isolation import burst_limiter, cpu_burst
from agents.isolation.cpu_burst import KERNEL_BURST, QUOTA_BURST, BurstConfig
from agents.table import Bools, Ints, spread
from schemas.records import BurstWish

if TYPE_CHECKING:
    from agents.state import PartitionState

MS_PER_S = 1000
Wishes = tuple[tuple[int, BurstWish], ...]


@dataclass(frozen=True, slots=True)
class Configs:
    """What holds for each pod [n], its own wish laid over its node's policy."""

    kernel: Bools
    quota: Bools
    cpu_percent: Ints
    quota_percent: Ints
    period_s: Ints
    size: Ints  # of the bucket of tokens


def active(state: PartitionState, rows: Ints) -> Bools:
    """Nodes [n] whose policy lets pods burst."""
    if state.policy is None:
        return np.zeros(len(rows), dtype=np.bool_)
    return ~law.choice(state, rows, "cpu_burst.policy", "none")


def configs(
    state: PartitionState, rows: Ints, wishes: Sequence[Wishes], slots: Ints, owner: Ints
) -> Configs:
    """The configuration of the pods ``slots`` [n] of ``rows``, in any order; read-only.

    ``owner`` indexes ``rows``; ``wishes``: what the pods of each row say, by place.
    """

    def of(name: str) -> Ints:
        return law.column(state, rows, f"cpu_burst.{name}")

    def among(policies: tuple[str, ...]) -> Bools:
        chosen = np.zeros(len(rows), dtype=np.bool_)
        for policy in policies:
            chosen |= law.choice(state, rows, "cpu_burst.policy", policy)
        return chosen

    percent, period_s = of("quota_burst_percent"), of("quota_burst_period_s")
    found = Configs(
        *(
            spread(column, owner)
            for column in (
                among(KERNEL_BURST), among(QUOTA_BURST), of("cpu_burst_percent"), percent, period_s,
                burst_limiter.capacity(period_s * MS_PER_S, percent),
            )
        )
    )  # fmt: skip
    if any(wishes):
        found = Configs(**{one.name: getattr(found, one.name).copy() for one in fields(found)})
        _lay_wishes(state, rows, wishes, slots, found)
    return found


def _lay_wishes(
    state: PartitionState, rows: Ints, wishes: Sequence[Wishes], slots: Ints, found: Configs
) -> None:  # fmt: skip
    """What pods wish over what their nodes say."""
    pods = {slot: i for i, slot in enumerate(slots.tolist())}
    for at, said in enumerate(wishes):
        for place, wish in said:
            pod = pods.get(int(state.nodes["start"][rows[at]]) + place)
            if pod is None:
                continue  # it is not among those asked for
            node = cpu_burst.config_of(law.of(state, int(rows[at])).cpu_burst)
            one = cpu_burst.merge(node, BurstConfig(**asdict(wish)))
            found.kernel[pod] = one.policy in KERNEL_BURST
            found.quota[pod] = one.policy in QUOTA_BURST
            for column, value in (
                (found.cpu_percent, one.cpu_burst_percent),
                (found.quota_percent, one.quota_burst_percent),
                (found.period_s, one.quota_burst_period_s),
            ):
                assert value is not None, "a node's policy says everything"
                column[pod] = value
            here = slice(pod, pod + 1)
            found.size[here] = burst_limiter.capacity(
                found.period_s[here] * MS_PER_S, found.quota_percent[here]
            )
