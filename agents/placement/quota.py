"""Fair shares of one resource between quotas: minimums first, the rest by weight.

Called by `agents.placement.quota_tree` for each parent and resource. Formula: koordinator
`elasticquota/core/runtime_quota_calculator.go` and `scale_minquota_when_over_root_res.go`.
Amounts are Python integers, exact at any size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Group:
    """One quota beside its siblings; ``request`` is already limited by its maximum."""

    name: str
    weight: int
    request: int
    minimum: int
    guarantee: int = 0
    lends: bool = True

    @property
    def floor(self) -> int:
        return max(self.minimum, self.guarantee)


def redistribute(total: int, groups: Sequence[Group]) -> dict[str, int]:
    """Each group's amount now, by name.

    A group that asks for more than its floor begins there and takes part; another gets what it
    asks for, or its floor if it does not lend. What is left is split by weight; a group is cut at
    its request and the excess goes round again. The sum exceeds ``total`` only when the floors do.
    It grows with ``total``; a single group may lose a unit to another's larger remainder.
    """
    runtime = {group.name: _start(group) for group in groups}
    left = total - sum(runtime.values())
    short = [group for group in groups if group.request > group.floor]
    while left > 0 and short:
        for name, more in split(left, short).items():
            runtime[name] += more
        left = 0
        for group in short:
            left += max(runtime[group.name] - group.request, 0)
            runtime[group.name] = min(runtime[group.name], group.request)
        short = [group for group in short if runtime[group.name] < group.request]
    return runtime


def split(amount: int, groups: Sequence[Group]) -> dict[str, int]:
    """``amount`` by weight, by the largest-remainder method; ties by name. No weight, no share.

    Whole parts first, then one unit each to the largest remainders, until all is given.
    """
    weights = {group.name: group.weight for group in groups if group.weight > 0}
    if not weights:
        return {}
    whole = sum(weights.values())
    shares = {name: amount * weight // whole for name, weight in weights.items()}
    by_remainder = sorted(weights, key=lambda name: (-(amount * weights[name] % whole), name))
    for name in by_remainder[: amount - sum(shares.values())]:
        shares[name] += 1
    return shares


def scaled_minimums(total: int, minimums: Sequence[int], scales: Sequence[bool]) -> list[int]:
    """The minimums that ``total`` can hold: whoever scales shares what the others leave.

    Unchanged when all fit. Else left x minimum / sum of the scaling ones, in the peer's order of
    floating-point operations, fractions dropped; 0 when nothing is left.
    """
    if sum(minimums) <= total:
        return list(minimums)
    scaling = sum(least for least, does in zip(minimums, scales, strict=True) if does)
    left = total - (sum(minimums) - scaling)
    return [
        least if not does else _part(left, least, scaling)
        for least, does in zip(minimums, scales, strict=True)
    ]


def _part(left: int, least: int, scaling: int) -> int:
    return int(float(left) * float(least) / float(scaling)) if left > 0 and scaling > 0 else 0


def _start(group: Group) -> int:
    if group.request > group.floor or not group.lends:
        return group.floor
    return group.request
