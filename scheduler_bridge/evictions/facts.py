"""What migration reads beside pods and nodes: policy, reports of use, the state of the fleet.

Folded by the loop. Reports are kept as bytes, one a node, and decoded when a round begins: rounds
are rare and reports are many.
"""

from __future__ import annotations

import logging
from typing import Any

from agents.side import POLICY_NAME
from scheduler_bridge.evictions.node import LiveNode
from schemas import codec
from schemas.errors import BadPolicy, BadRecord
from schemas.policy import Effective, Policy, Published, Reach, effective, named, published, reach
from schemas.records import FLEET_KEY, FleetFacts, PolicyRecord, Reservation

log = logging.getLogger("slackwater.evictor")
TOPICS = ("policies", "fleet", "reservations")
NODES_MAX = 100_000


class Facts:
    """The newest of each; ``fleet_ms`` is its log time."""

    def __init__(self) -> None:
        self.policy: Published | None = None
        self.fleet: FleetFacts | None = None
        self.fleet_ms = 0
        self._reports: dict[str, tuple[int, bytes]] = {}
        self._effective: dict[tuple[bool, Reach], Effective] = {}

    def fold(self, topic: str, record: Any) -> str:
        """Take one record of `TOPICS`; says what it was. Raises BadRecord."""
        key, raw = record.key, record.value
        if raw is None or key is None:
            return "other"
        codec.encoding_of(record.headers)
        if topic == "policies":
            return self._policy(codec.decode(PolicyRecord, raw)) if key == _NAME else "other"
        if topic == "fleet":
            if key != FLEET_KEY:
                return "other"
            facts = codec.decode(FleetFacts, raw)
            if self.fleet is None or facts.revision >= self.fleet.revision:
                self.fleet, self.fleet_ms = facts, record.timestamp
            return "read"
        node = key.decode(errors="replace")
        if node in self._reports or len(self._reports) < NODES_MAX:
            self._reports[node] = (record.timestamp, raw)
        return "kept"

    def reports(self, now_ms: int, expire_ms: int) -> dict[str, Reservation]:
        """Those that are fresh and can be read, by node; old ones are forgotten."""
        found: dict[str, Reservation] = {}
        for node, (at_ms, raw) in list(self._reports.items()):
            if now_ms - at_ms >= expire_ms:
                del self._reports[node]
                continue
            try:
                record = codec.decode(Reservation, raw)
            except BadRecord as error:
                log.warning("the report of %s cannot be read: %s", node, error)
                continue
            if record.node == node:
                found[node] = record
        return found

    def migrates(self, node: LiveNode) -> bool:
        """Whether the policy that holds on this node lets its pods be asked to leave."""
        policy = self._on(node)
        return policy is not None and policy.migration.enabled

    def deletes(self, node: LiveNode | None) -> bool:
        """Whether a pod of it may be deleted where no Eviction API is served."""
        policy = None if node is None else self._on(node)
        return policy is not None and policy.eviction.api_delete

    def _on(self, node: LiveNode) -> Policy | None:
        """The policy as it holds on this node."""
        if self.policy is None:
            return None
        labels = named(node.name, node.labels)
        policy = self.policy.on(labels)
        found = reach(policy, labels, node.annotation)
        key = policy is self.policy.policy, found
        if key not in self._effective:
            self._effective[key] = effective(policy, found)
        return self._effective[key].policy

    def _policy(self, record: PolicyRecord) -> str:
        """The last good one holds."""
        try:
            self.policy = published(record)
        except BadPolicy as error:
            log.warning("policy version %d is refused: %s", record.version, error)
            return "bad"
        self._effective.clear()
        return "read"


_NAME = POLICY_NAME.encode()
