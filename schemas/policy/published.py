"""What one record of the topic `policies` puts in force: on all nodes, or on a canary first.

A record with a canary carries two texts, because the topic keeps only the newest record of a key
for good: whoever starts late must find both in it. `agents.side`, the second stage and the command
line read records through `published`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas.errors import BadPolicy
from schemas.policy.document import Policy, digest
from schemas.policy.layers import carries
from schemas.policy.reading import parse
from schemas.records import PolicyRecord


@dataclass(frozen=True, slots=True)
class Published:
    """``policy`` holds on the whole fleet, but where ``canary`` matches, ``trial`` does.

    The sections `loop` and `blast` are the fleet's: those of a trial wait for its promotion.
    """

    policy: Policy
    trial: Policy | None = None
    canary: dict[str, str] = field(default_factory=dict)

    def on(self, labels: Mapping[str, str]) -> Policy:
        """The policy whose layers a node with these labels (`layers.named`) reads."""
        if self.trial is not None and carries(labels, self.canary):
            return self.trial
        return self.policy

    @property
    def digest(self) -> str:
        """16 hex digits; without a canary those of the policy itself."""
        if self.trial is None:
            return digest(self.policy)
        match = sorted(self.canary.items())
        whole = f"{digest(self.policy)} {digest(self.trial)} {match!r}"
        return hashlib.sha256(whole.encode()).hexdigest()[:16]


def published(record: PolicyRecord) -> Published:
    """What ``record`` puts in force. Raises BadPolicy when one of its texts may not run."""
    source = f"policy {record.name} version {record.version}"
    policy = parse(record.text, source)
    if not record.canary:
        return Published(policy)
    elsewhere = parse(record.elsewhere, f"{source}, outside its canary")
    if elsewhere.name != policy.name:
        raise BadPolicy(
            f"{source}: name is {policy.name} in the canary, {elsewhere.name} elsewhere"
        )
    return Published(elsewhere, policy, dict(record.canary))
