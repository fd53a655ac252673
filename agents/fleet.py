"""What no single partition knows: the fleet's ill nodes, and who may evict how much now.

The second stage (`streams.fleet_app`) folds what every partition says of its nodes, in the order
of the topic `fleet`, and publishes the facts; partitions read `budget_of` before they evict.
Time is the append time of records, made monotone. The budget of one cool-down is shared once,
when the cool-down's slot begins, and kept for the slot: whoever asks later waits for the next one,
so that no slot spends more than the budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from schemas.errors import BadRecord
from schemas.policy import Policy
from schemas.records import FleetFacts, PartitionHealth

PUBLISH_MS = 1_000  # facts go out at most once in this time, but for a budget that falls
REFRESHES = 3  # unchanged facts are said again so often within their staleness


@dataclass(frozen=True, slots=True)
class Heard:
    """The newest that one partition said, with its place and time in the topic."""

    at_ms: int
    offset: int
    health: PartitionHealth


@dataclass(slots=True)
class Fleet:
    """State of the second stage; `fold` every record of a partition, then ask for `facts`."""

    partitions: int
    incarnation: int
    now_ms: int = 0
    revision: int = -1
    heard: dict[int, Heard] = field(default_factory=dict)
    slot: int = -1
    shares: tuple[int, ...] = ()

    def fold(self, partition: int, at_ms: int, offset: int, health: PartitionHealth) -> bool:
        """Note what a partition said; False for a repeat and for another incarnation.

        Raises BadRecord when the numbers or the partition cannot be.
        """
        if offset <= self.revision or health.cause.incarnation != self.incarnation:
            return False
        if not 0 <= partition < self.partitions:
            raise BadRecord("unknown_partition", f"partition {partition} of {self.partitions}")
        if not (0 <= health.ill <= health.nodes and 0 <= health.silent <= health.nodes):
            raise BadRecord("wrong_type", f"{health.ill} ill, {health.silent} of {health.nodes}")
        self.now_ms = max(self.now_ms, at_ms)
        self.revision = offset
        self.heard[partition] = Heard(self.now_ms, offset, health)
        return True

    def facts(self, policy: Policy | None) -> FleetFacts:
        """The fleet now. Missing or stale partitions, too many ill nodes, no policy: no budget."""
        stale_after_ms = policy.blast.facts_stale_ms if policy else 0
        fresh = {
            partition: heard.health
            for partition, heard in self.heard.items()
            if policy and self.now_ms - heard.at_ms <= stale_after_ms
        }
        nodes = sum(health.nodes for health in fresh.values())
        ill = sum(health.ill for health in fresh.values())
        ill_permille = ill * 1000 // nodes if nodes > 0 else 0
        reason = _stop(policy, self.partitions - len(fresh), nodes, ill_permille)
        if policy is not None:
            self._share(policy, nodes, fresh, stopped=bool(reason))
        budgets = (0,) * self.partitions if reason else self.shares
        return FleetFacts(
            revision=self.revision,
            partitions_seen=len(fresh),
            nodes=nodes,
            silent=sum(health.silent for health in fresh.values()),
            ill=ill,
            ill_permille=ill_permille,
            evictions_per_partition=min(budgets),
            stale_after_ms=stale_after_ms,
            reason=reason,
            budgets=budgets,
        )

    def _share(
        self, policy: Policy, nodes: int, fresh: dict[int, PartitionHealth], *, stopped: bool
    ) -> None:
        """Share the budget of a new slot; within a slot nothing changes."""
        slot = self.now_ms // policy.evict_memory.cooldown_ms
        if slot == self.slot:
            return
        self.slot = slot
        allowed = 0 if stopped else fleet_budget(nodes, policy.blast.evictions_permille)
        wanted = [
            fresh[partition].evictions_wanted if partition in fresh else 0
            for partition in range(self.partitions)
        ]
        self.shares = share(allowed, wanted, slot)


def fleet_budget(nodes: int, evictions_permille: int) -> int:
    """Evictions of the whole fleet in one cool-down: the policy's share of its nodes, at least one.

    None where the policy allows none or there are no nodes.
    """
    if nodes <= 0 or evictions_permille <= 0:
        return 0
    return max(1, nodes * evictions_permille // 1000)


def share(budget: int, wanted: Sequence[int], turn: int) -> tuple[int, ...]:
    """``budget`` over partitions: first what is wanted, one each in turn; the rest evenly.

    ``turn`` names who comes first, so that a budget smaller than the partitions goes round. The
    shares sum to the budget.
    """
    count = len(wanted)
    order = [(turn + place) % count for place in range(count)]
    shares = [0] * count
    left = budget
    asking = [partition for partition in order if wanted[partition] > 0]
    while left > 0 and asking:
        least = min(wanted[partition] - shares[partition] for partition in asking)
        each = max(1, min(left // len(asking), least))
        given = asking[: left // each]
        for partition in given:
            shares[partition] += each
        left -= each * len(given)
        asking = [partition for partition in asking if wanted[partition] > shares[partition]]
    each, extra = divmod(left, count)
    for place, partition in enumerate(order):
        shares[partition] += each + (place < extra)
    return tuple(shares)


def budget_of(facts: FleetFacts, partition: int) -> int:
    """How many evictions ``partition`` may order in one cool-down under these facts."""
    if not facts.budgets:
        return facts.evictions_per_partition
    return facts.budgets[partition] if 0 <= partition < len(facts.budgets) else 0


def due(facts: FleetFacts, now_ms: int, said: FleetFacts | None, said_ms: int) -> bool:
    """Whether facts are to be published at ``now_ms``, when ``said`` were at ``said_ms``.

    At most once in `PUBLISH_MS`; on change, and unchanged well within their staleness. A fall of
    the fleet's budget goes out at once.
    """
    if said is None or sum(facts.budgets) < sum(said.budgets):
        return True
    if now_ms - said_ms < PUBLISH_MS:
        return False
    changed = replace(facts, revision=said.revision) != said
    return changed or now_ms - said_ms >= facts.stale_after_ms // REFRESHES


def _stop(policy: Policy | None, missing: int, nodes: int, ill_permille: int) -> str:
    """Why nothing may be evicted, a reason code; "" when it may."""
    if policy is None:
        return "no_policy"
    if missing > 0:
        return "partitions_missing"
    if nodes <= 0:
        return "no_nodes"
    if ill_permille >= policy.blast.stop_ill_permille:
        return "too_many_ill"
    if policy.blast.evictions_permille <= 0:
        return "none_allowed"
    return ""
