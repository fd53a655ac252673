"""Desired capacity against what is published, as an ordered list of patches. Pure.

Called by `scheduler_bridge.loop` with the time as a value; every sink gets the same patches.
The differences follow Koordinator's reconcile (relative threshold strictly exceeded, 0 -> x always,
equal never, forced refresh), with manners of our own: falls go first, then what someone has wiped;
a number born of missing data never falls below what is lent; silence withdraws by itself; and where
no new work is wanted, no more is offered than is lent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from agents.lending.publish import differs

Order = tuple[int, int]
"""(incarnation, offset) of the record of ``samples`` that caused a number; older never wins."""

Why = Literal[
    "first", "fall", "restored", "rise", "new_work", "refresh", "stale", "removed", "held"
]
Basis = Literal["desired", "stale", "removed", "held"]

UNSURE_REASONS: frozenset[str] = frozenset(
    {"cold", "silent", "unknown_pods", "withdrawn", "stale", "missing"}
)
"""Reason codes of numbers that were born of missing or old data, whatever they say."""


@dataclass(frozen=True, slots=True)
class Amount:
    """CPU in millicores and memory in bytes, batch's and mid's."""

    cpu_milli: int
    memory_bytes: int
    mid_cpu_milli: int = 0
    mid_memory_bytes: int = 0

    def each(self) -> tuple[int, int, int, int]:
        """All four, in the order of the fields."""
        return self.cpu_milli, self.memory_bytes, self.mid_cpu_milli, self.mid_memory_bytes


Zones = tuple[tuple[int, int], ...]
"""Batch CPU in millicores and memory in bytes of each NUMA zone, in the order of the zones."""


@dataclass(frozen=True, slots=True)
class Desired:
    """The newest capacity record of a node; ``seen_ms`` is its log time."""

    amount: Amount
    new_work: bool
    reason: str
    order: Order
    seen_ms: int
    policy: str = ""
    removed: bool = False
    workloads: tuple[str, ...] = ()  # only these may borrow; none named: any
    zones: Zones = ()


@dataclass(frozen=True, slots=True)
class Observed:
    """What a scheduler shows of a node now, when it was last told (log time), and on what ground.

    ``order`` and ``seen_ms`` are those of the capacity record behind the numbers. ``offered`` is
    what may be in use in all, new work included: None where a system knows no such difference.
    """

    amount: Amount
    new_work: bool
    order: Order
    seen_ms: int
    at_ms: int
    offered: Amount | None = None


@dataclass(frozen=True, slots=True)
class Patch:
    """One node's new numbers: absolute, so that applying it twice is applying it once.

    ``offered`` is ``amount``; but without new work no more than is lent, where that is known.
    """

    node: str
    amount: Amount
    new_work: bool
    why: Why
    reason: str
    order: Order
    seen_ms: int
    policy: str
    previous: Amount | None
    at_ms: int
    offered: Amount
    zones: Zones = ()

    def applied(self) -> Observed:
        """What is observed once this patch has been applied."""
        return Observed(
            self.amount, self.new_work, self.order, self.seen_ms, self.at_ms, self.offered
        )


@dataclass(frozen=True, slots=True)
class Rules:
    """Manners of publishing. A change counts beyond both the relative and the absolute mark."""

    change_permille: int = 100
    least_cpu_milli: int = 100
    least_memory_bytes: int = 64 << 20
    refresh_ms: int = 300_000
    stale_ms: int = 900_000
    unsure_reasons: frozenset[str] = UNSURE_REASONS

    def __post_init__(self) -> None:
        for name in ("change_permille", "least_cpu_milli", "least_memory_bytes"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; allowed: 0 and more")
        if not 0 < self.refresh_ms < self.stale_ms:
            raise ValueError(
                f"refresh_ms is {self.refresh_ms}, stale_ms {self.stale_ms}; "
                "allowed: 0 < refresh_ms < stale_ms"
            )


def reconcile(
    desired: Mapping[str, Desired],
    observed: Mapping[str, Observed],
    lent: Mapping[str, Amount],
    now_ms: int,
    rules: Rules,
) -> list[Patch]:
    """The patches that are due at ``now_ms`` (log time), falls first, largest fall first.

    Where the record of a node is gone, or an older one came back, what is shown stands and ages.
    Applying all patches and calling again with the same time gives none.
    """
    patches = []
    for node in desired.keys() | observed.keys():
        patch = _of_node(node, desired.get(node), observed.get(node), lent.get(node), now_ms, rules)
        if patch is not None:
            patches.append(patch)
    return sorted(patches, key=lambda patch: _urgency(patch, observed.get(patch.node)))


def changed(old: int, new: int, permille: int, least: int) -> bool:
    """Whether a number differs enough to be told: 0 -> x and x -> 0 always, equal never."""
    if old == new:
        return False
    if old == 0 or new == 0:
        return True
    return differs(old, new, permille) and abs(new - old) >= least


def fall_permille(old: Amount, new: Amount) -> int:
    """The deepest fall of any amount, in thousandths of what was shown; 0 without a fall."""
    return max(_fall(*pair) for pair in zip(old.each(), new.each(), strict=True))


def _of_node(
    node: str,
    want: Desired | None,
    shown: Observed | None,
    lent: Amount | None,
    now_ms: int,
    rules: Rules,
) -> Patch | None:
    """The patch of one node, or None when it may stay as it is shown."""
    if shown is not None and (want is None or want.order < shown.order):
        want = Desired(shown.amount, shown.new_work, "no_record", shown.order, shown.seen_ms)
    assert want is not None, f"{node} is neither desired nor observed"
    amount, new_work, basis = _target(want, shown, lent, now_ms, rules)
    offered = amount if new_work or lent is None else _least(amount, lent)
    why = _why(amount, offered, new_work, basis, shown, lent, now_ms, rules)
    if why is None:
        return None
    previous = shown.amount if shown is not None else None
    return Patch(
        node=node,
        amount=amount,
        new_work=new_work,
        why=why,
        reason=want.reason,
        order=want.order,
        seen_ms=want.seen_ms,
        policy=want.policy,
        previous=previous,
        at_ms=now_ms,
        offered=offered,
        zones=want.zones if new_work else ((0, 0),) * len(want.zones),
    )


def _target(
    want: Desired, shown: Observed | None, lent: Amount | None, now_ms: int, rules: Rules
) -> tuple[Amount, bool, Basis]:
    """What should be shown. Silence and unsure numbers never go below what is lent."""
    last = shown.amount if shown is not None else want.amount
    if want.removed or now_ms - want.seen_ms >= rules.stale_ms:
        return lent if lent is not None else last, False, "removed" if want.removed else "stale"
    if want.reason in rules.unsure_reasons:
        floor = lent if lent is not None else last
        held = Amount(*map(max, want.amount.each(), floor.each()))
        if held != want.amount:
            return held, False, "held"
    return want.amount, want.new_work, "desired"


def _why(
    amount: Amount,
    offered: Amount,
    new_work: bool,
    basis: Basis,
    shown: Observed | None,
    lent: Amount | None,
    now_ms: int,
    rules: Rules,
) -> Why | None:
    """Why these numbers are due now, or None."""
    if shown is None:
        return "first"
    old = shown.amount
    permille = rules.change_permille
    differs_now = _differs(old, amount, permille, rules)
    if shown.offered is not None:
        # Without new work what is offered follows what is lent, also where that is little.
        finest = permille if new_work else 0
        differs_now = differs_now or _differs(shown.offered, offered, finest, rules)
    if not differs_now:
        if new_work != shown.new_work:
            return "new_work" if basis == "desired" else basis
        return "refresh" if now_ms - shown.at_ms >= rules.refresh_ms else None
    if basis != "desired":
        return basis
    if fall_permille(old, amount):
        return "fall"
    if lent is not None and _least(old, lent) != lent:
        return "restored"  # nobody of ours takes away what is lent
    return "rise" if amount != old else "new_work"


def _differs(old: Amount, new: Amount, permille: int, rules: Rules) -> bool:
    if old == new:
        return False
    marks = (rules.least_cpu_milli, rules.least_memory_bytes) * 2
    return any(
        changed(before, now, permille, mark)
        for before, now, mark in zip(old.each(), new.each(), marks, strict=True)
    )


def _least(one: Amount, other: Amount) -> Amount:
    return Amount(*map(min, one.each(), other.each()))


def _urgency(patch: Patch, shown: Observed | None) -> tuple[bool, int, bool, bool, bool, int, str]:
    """A total order: falls by depth, what was wiped, new work refused, the rest, what only grew
    old (the oldest first); each by node.
    """
    fall = fall_permille(patch.previous, patch.amount) if patch.previous is not None else 0
    old = patch.why == "refresh"
    told_ms = shown.at_ms if shown is not None and old else 0
    return (fall == 0, -fall, old, patch.why != "restored", patch.new_work, told_ms, patch.node)


def _fall(old: int, new: int) -> int:
    """How far ``new`` lies below ``old``, in thousandths of ``old``, rounded up."""
    return -((new - old) * 1000 // old) if new < old and old > 0 else 0
