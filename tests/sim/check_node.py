"""Invariants of one node, watched at every moment: what it hears, acks, writes and kills.

Judged by broker time and the kernel's truth, never by what the node itself believes. The rule and
the granted ceiling are recomputed here in the plainest way.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from schemas.policy import Policy
from schemas.records import Ack, Command, Lease
from tests.sim import rule
from tests.sim.broker import Broker
from tests.sim.findings import Report
from tests.sim.kernel import UNLIMITED
from tests.sim.node import FLOOR_MILLI, PERIOD_MS, SimNode

SAMPLE_AGE_MS = 2 * PERIOD_MS + 500
UNSETTLED_MS = 7_000  # after a fault at the node, and how old its data may be meanwhile
NEED_AGE_MS = 6_000  # a local eviction follows a full memory within this
TOLERANCE_PERMILLE = 21  # of capacity: a change of up to 1 % is not said, one of 1 % not written
Order = tuple[int, int]


@dataclass(slots=True)
class _Seen:
    """What is known of one node from outside."""

    allowed: rule.History = field(default_factory=lambda: rule.History(60_000))
    memory: rule.History = field(default_factory=lambda: rule.History(60_000))
    unsettled_ms: int = 0  # until then data may be older than a sample
    slack_ms: int = 0  # a halted clock: broker time as the node knows it lags so much...
    slack_until_ms: int = 0  # ... until then
    newest: dict[str, Order] = field(default_factory=dict)
    ceiling_milli: int = FLOOR_MILLI
    standing: Command | None = None
    expires_ms: int = 0
    applied: dict[str, int] = field(default_factory=dict)  # command id -> acks "applied"
    effects: dict[str, set[str]] = field(default_factory=dict)  # command id -> uids killed
    last_applied: dict[str, Order] = field(default_factory=dict)
    evicted_ms: int | None = None  # broker time of the last kill's order
    evicting: str = ""
    local_kills: deque[int] = field(default_factory=deque)


class NodeCheck:
    """One for the whole cluster; nodes call it, and `look` is called every quantum."""

    def __init__(self, report: Report, broker: Broker, start_ms: int, cooldown_ms: int) -> None:
        self.report, self._broker, self._start_ms = report, broker, start_ms
        self.cooldown_ms = cooldown_ms
        self.policies: list[tuple[int, Policy | None]] = [(0, None)]  # since when, what
        self._seen: dict[str, _Seen] = {}

    def unsettle(self, node: SimNode, for_ms: int = UNSETTLED_MS) -> None:
        """Something happened at the node: its data may be older than usual for a while."""
        seen = self._of(node)
        seen.unsettled_ms = max(seen.unsettled_ms, self._broker.now_ms + for_ms)

    def resumed(self, node: SimNode, halted_ms: int) -> None:
        """The node's clock stood still for so long; it learns of that from what Kafka answers."""
        seen = self._of(node)
        seen.slack_ms, seen.slack_until_ms = halted_ms, self._broker.now_ms + 12_000
        self.unsettle(node)

    def started(self, node: SimNode) -> None:
        seen = self._of(node)
        seen.standing = None
        self.unsettle(node)

    def heard(self, node: SimNode, command: Command) -> None:
        """The plain rule of order: per decider, (incarnation, offset) must grow."""
        seen = self._of(node)
        order = (command.cause.incarnation, command.cause.offset)
        if command.decider != "suppress" or command.node != node.name or command.allow_milli < 0:
            return
        newest = seen.newest.get("suppress", (-1, -1))
        if order < newest or (order == newest and seen.standing is not None):
            return
        seen.newest["suppress"] = order
        seen.standing, seen.expires_ms = command, command.expires_log_ms
        self._grant(seen)

    def renewed(self, node: SimNode, lease: Lease) -> None:
        seen = self._of(node)
        held = seen.standing
        order = (lease.cause.incarnation, lease.cause.offset)
        if (
            held is not None
            and order[0] == held.cause.incarnation
            and order[1] >= held.cause.offset
        ):
            seen.expires_ms = max(seen.expires_ms, lease.expires_log_ms)
            self._grant(seen)

    def acked(self, node: SimNode, ack: Ack) -> None:
        self.report.figures[f"{ack.outcome}_acks"] += 1
        if not ack.command_id or ack.outcome != "applied":
            return
        seen = self._of(node)
        count = seen.applied[ack.command_id] = seen.applied.get(ack.command_id, 0) + 1
        if count > 1:
            self._broken("twice_is_once", f"{node.name} applied {ack.command_id} {count} times")
        order = (ack.incarnation, ack.offset)
        last = seen.last_applied.get(ack.decider)
        if last is not None and order <= last and count == 1:
            self._broken("order_never_back", f"{node.name} {ack.decider}: {order} after {last}")
        seen.last_applied[ack.decider] = max(order, last or order)

    def killed(self, node: SimNode, uid: str, was_there: bool) -> None:
        seen, now_ms = self._of(node), self._broker.now_ms
        self.report.figures["kills"] += 1
        self.unsettle(node)
        if "best_effort" not in uid:
            self._broken("online_untouched", f"{node.name}: {uid} was killed")
        if node.hearing:
            killed = seen.effects.setdefault(node.hearing, set())
            if uid in killed or not was_there:
                self._broken("twice_is_once", f"{node.name}: {node.hearing} kills {uid} again")
            killed.add(uid)
        self._needed(node, seen)
        act = node.hearing or f"local {now_ms}"
        last_ms = seen.evicted_ms
        if last_ms is not None and act != seen.evicting and now_ms - last_ms < self.cooldown_ms:
            self._broken("cool_down", f"{node.name}: {act}, {now_ms - last_ms} ms after the last")
        if act == seen.evicting and not node.hearing:
            self._broken("blast_radius", f"{node.name}: the local gate took more than one pod")
        seen.evicted_ms, seen.evicting = now_ms, act

    def quota(self) -> None:
        self.report.figures["quota_writes"] += 1

    def before(self, nodes: list[SimNode]) -> None:
        """Every quantum, before anybody acts: what memory really holds."""
        for node in nodes:
            self._of(node).memory.note(self._broker.now_ms, rule.memory_percent(node.kernel))

    def look(self, nodes: list[SimNode]) -> None:
        """Every quantum, after everything else."""
        for node in nodes:
            self._look(node)

    def policy_span(self, since_ms: int) -> list[Policy | None]:
        """Policies that were in force at ``since_ms`` or came later."""
        before = [policy for at_ms, policy in self.policies if at_ms <= since_ms]
        return [*before[-1:], *(policy for at_ms, policy in self.policies if at_ms > since_ms)]

    def _look(self, node: SimNode) -> None:
        seen, now_ms = self._of(node), self._broker.now_ms
        policies = self.policy_span(now_ms - UNSETTLED_MS)
        seen.allowed.note(
            now_ms,
            max(rule.allowed_milli(node.kernel, p, node.reserved_milli) for p in policies),
        )
        agent, quota = node.agent, node.kernel.quota_milli
        if agent is None or agent.beats == 0 or node.halted:
            return
        if quota == UNLIMITED:
            self._broken("within_law", f"{node.name}: best effort is not bounded")
            return
        if quota < FLOOR_MILLI:
            self._broken("not_below_floor", f"{node.name}: quota {quota}")
        self._ceiling(node, seen, quota)
        unsettled = now_ms < seen.unsettled_ms
        since_ms = now_ms - (UNSETTLED_MS if unsettled else SAMPLE_AGE_MS)
        bound = seen.allowed.most(since_ms) + node.kernel.cpu_milli * TOLERANCE_PERMILLE // 1000
        if unsettled:  # a new pod's first use is not told from the system's, which has a reserve
            bound += node.reserved_milli
        if quota > bound:
            self._broken("within_law", f"{node.name}: quota {quota}, the rule {bound}")

    def _ceiling(self, node: SimNode, seen: _Seen, quota: int) -> None:
        self._grant(seen)
        if quota > max(seen.ceiling_milli, FLOOR_MILLI):
            detail = f"{node.name}: quota {quota} above the ceiling {seen.ceiling_milli}"
            self._broken("raise_needs_live_command", detail)

    def _grant(self, seen: _Seen) -> None:
        held, now_ms = seen.standing, self._broker.now_ms
        if held is None:
            return
        slack_ms = seen.slack_ms if now_ms < seen.slack_until_ms else 0
        live = now_ms - slack_ms <= seen.expires_ms
        asked = held.allow_milli
        seen.ceiling_milli = asked if live else min(asked, seen.ceiling_milli)

    def _needed(self, node: SimNode, seen: _Seen) -> None:
        """Memory must really have been full when the order was made."""
        since_ms = self._broker.now_ms - NEED_AGE_MS
        threshold = 101
        for policy in self.policy_span(since_ms):
            if policy is None:
                continue
            threshold = min(threshold, policy.evict_memory.threshold_percent)
            if node.hearing:
                since_ms = min(since_ms, self._broker.now_ms - policy.loop.command_ttl_ms - 5_000)
        if seen.memory.most(since_ms) < threshold:
            full = seen.memory.most(since_ms)
            detail = f"{node.name}: {node.hearing or 'local'} evicts at {full} %"
            self._broken("zero_evicts_nobody", detail)

    def _of(self, node: SimNode) -> _Seen:
        return self._seen.setdefault(node.name, _Seen())

    def _broken(self, invariant: str, detail: str) -> None:
        self.report.broken(invariant, self._broker.now_ms - self._start_ms, detail)
