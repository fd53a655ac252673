"""Which policy held when, and the stage that it puts a node in."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from schemas.errors import BadPolicy
from schemas.policy import ANNOTATION, Objective, Published, effective, named, published, reach
from schemas.records import Inventory, PolicyRecord
from streams import stages

POLICY_NAME = b"default"
"""The one that workers follow."""


@dataclass(frozen=True, slots=True)
class Version:
    """A policy from ``from_ms`` on."""

    from_ms: int
    number: int
    digest: str
    published: Published


@dataclass(frozen=True, slots=True)
class Standing:
    """What a node is in under a policy; objectives by workload, whatever the stage switches off."""

    stage: str
    objectives: dict[str, Objective]


class Policies:
    """The versions in log order; one that may not run is passed over, as workers do."""

    def __init__(self) -> None:
        self.versions: list[Version] = []
        self._known: dict[tuple[str, object], Standing] = {}

    def note(self, key: bytes | None, record: PolicyRecord, at_ms: int) -> None:
        """Take a version over."""
        if key != POLICY_NAME:
            return
        try:
            found = published(record)
        except BadPolicy:
            return
        self.versions.append(Version(at_ms, record.version, found.digest, found))

    def at(self, ms: int) -> Version | None:
        """What is in force; before the first version none is."""
        place = bisect_right(self.versions, ms, key=lambda version: version.from_ms)
        return self.versions[place - 1] if place else None

    def standing(self, version: Version | None, inventory: Inventory | None) -> Standing:
        """Of a node with this inventory; nothing is known of one without."""
        if version is None or inventory is None:
            return Standing("", {})
        labels = named(inventory.node, inventory.labels)
        policy = version.published.on(labels)
        found = reach(policy, labels, inventory.annotations.get(ANNOTATION, ""))
        key = (version.digest, (policy is version.published.trial, found))
        if key not in self._known:
            rule = effective(policy, found).policy
            stage = stages.CONTROL if found.control else rule.rollout.stage
            named_by = {one.workload: one for one in rule.slo_guard.objectives}
            self._known[key] = Standing(stage, named_by)
        return self._known[key]
