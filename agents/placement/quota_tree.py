"""What every quota of a tree may use now: requests go up the tree, amounts come down.

Called by the scheduler bridge's admission when a quota or its requests change. Rules: koordinator
`elasticquota/core/group_quota_manager.go`, converged: minimums are rescaled at once, not lazily.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agents.placement.quota import Group, redistribute, scaled_minimums

ROOT = "root"
Amounts = Mapping[str, int]
"""By resource; what is absent counts as 0."""


@dataclass(frozen=True, slots=True)
class Quota:
    """One quota as its owner wrote it, with what its own pods ask for."""

    name: str
    parent: str
    maximum: Amounts  # a resource that is absent has no maximum
    minimum: Amounts
    request: Amounts
    weight: Amounts | None = None  # None: the maximum
    guarantee: Amounts = field(default_factory=dict)
    lends: bool = True
    scales: bool = True  # its minimum may shrink


@dataclass(slots=True)
class Share:
    """The answer for one quota, by resource, with the terms it follows from."""

    limited_request: dict[str, int] = field(default_factory=dict)
    effective_min: dict[str, int] = field(default_factory=dict)
    runtime: dict[str, int] = field(default_factory=dict)
    reason: dict[str, str] = field(default_factory=dict)


def refresh(total: Amounts, quotas: Sequence[Quota], scale_minimums: bool) -> dict[str, Share]:
    """Shares by name, the same in whatever order the quotas come.

    Raises ValueError, naming the quota, if two have one name or one hangs on no root.
    """
    children = _children(quotas)
    order = _downwards(children, len(quotas))
    shares = {quota.name: Share() for quota in order}
    resources = sorted(set(total).union(*(set(q.maximum) | set(q.minimum) for q in quotas)))
    for resource in resources:
        for quota in reversed(order):
            below = children.get(quota.name, [])
            own = quota.request.get(resource, 0)
            asked = own + sum(shares[child.name].limited_request[resource] for child in below)
            shares[quota.name].limited_request[resource] = limited(quota, resource, asked)
        amounts = {ROOT: total.get(resource, 0)}
        for parent in (ROOT, *(quota.name for quota in order)):
            if parent in children:
                amounts |= _give(
                    amounts[parent], children[parent], shares, resource, scale_minimums
                )
    return shares


def limited(quota: Quota, resource: str, asked: int) -> int:
    """What a quota asks of its parent when it and those below it ask for so much: at most its
    maximum; one that does not lend, its minimum at least.
    """
    if not quota.lends:
        asked = max(asked, quota.minimum.get(resource, 0))
    return min(asked, quota.maximum.get(resource, asked))


def _give(
    total: int, quotas: list[Quota], shares: dict[str, Share], resource: str, scale: bool
) -> dict[str, int]:
    """One parent's ``total`` among its children; writes their shares, returns the amounts."""
    minimums = [quota.minimum.get(resource, 0) for quota in quotas]
    effective = (
        scaled_minimums(total, minimums, [quota.scales for quota in quotas]) if scale else minimums
    )
    groups = [
        Group(
            quota.name,
            (quota.maximum if quota.weight is None else quota.weight).get(resource, 0),
            shares[quota.name].limited_request[resource],
            least,
            quota.guarantee.get(resource, 0),
            quota.lends,
        )
        for quota, least in zip(quotas, effective, strict=True)
    ]
    runtime = redistribute(total, groups)
    for group in groups:
        share = shares[group.name]
        share.effective_min[resource] = group.minimum
        share.runtime[resource] = runtime[group.name]
        share.reason[resource] = _reason(group, runtime[group.name])
    return runtime


def _reason(group: Group, runtime: int) -> str:
    if runtime < group.request:
        return "short"
    if runtime > group.request:
        return "keeps_minimum"
    return "lends" if runtime < group.floor else "satisfied"


def _children(quotas: Sequence[Quota]) -> dict[str, list[Quota]]:
    """Quotas by parent, each list in the order of names."""
    children: dict[str, list[Quota]] = {}
    seen = {ROOT}
    for quota in sorted(quotas, key=lambda quota: quota.name):
        if quota.name in seen:
            raise ValueError(f"quota {quota.name}: a second one of this name")
        seen.add(quota.name)
        children.setdefault(quota.parent, []).append(quota)
    return children


def _downwards(children: dict[str, list[Quota]], count: int) -> list[Quota]:
    """All quotas, each after its parent."""
    order = list(children.get(ROOT, []))
    for quota in order:
        order.extend(children.get(quota.name, []))
    if len(order) != count:
        reached = {quota.name for quota in order}
        lost = sorted({q.name for below in children.values() for q in below} - reached)
        raise ValueError(f"quota {lost[0]}: its parents do not lead to {ROOT}")
    return order
