"""Which policy held when, what each one changed, and what online services are held against."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

import msgspec

from schemas import policy
from schemas.errors import BadPolicy
from schemas.policy import Objective, Policy
from streams.recording import Recording
from streams.report.columns import rows
from streams.report.model import Change

COLUMNS = ("log_ms", "name", "version", "digest", "author", "note", "text")


@dataclass(frozen=True, slots=True)
class Said:
    """One published policy; ``policy`` None: it cannot be read by this version."""

    change: Change
    policy: Policy | None


class Policies:
    """All that were published, in their order."""

    def __init__(self, recording: Recording) -> None:
        self.said: list[Said] = []
        newest: dict[str, Policy] = {}
        for row in rows(recording, "policies", COLUMNS):
            if row["text"] is None:
                continue
            found = _parse(row["text"], row["name"])
            before = newest.get(row["name"])
            changes = () if found is None or before is None else differences(before, found)
            if found is not None:
                newest[row["name"]] = found
            digest = row["digest"] or ("" if found is None else policy.digest(found))
            self.said.append(
                Said(
                    Change(
                        row["log_ms"], row["name"], row["version"], digest,
                        row["author"] or "", row["note"] or "", changes,
                    ),
                    found,
                )
            )  # fmt: skip
        self._times = [each.change.log_ms for each in self.said]

    @property
    def changes(self) -> tuple[Change, ...]:
        """What was published, in order."""
        return tuple(each.change for each in self.said)

    def version(self, digest: str, log_ms: int) -> int:
        """The newest version of a digest at a moment; -1: it was never published here."""
        known = [each for each in self.changes if each.digest == digest and digest]
        before = [each.version for each in known if each.log_ms <= log_ms]
        return before[-1] if before else known[0].version if known else -1

    def objectives(self) -> dict[str, Objective]:
        """Workload -> the newest objective that any policy of the recording names."""
        found: dict[str, Objective] = {}
        for each in self.said:
            if each.policy is not None:
                found |= {one.workload: one for one in each.policy.slo_guard.objectives}
        return found

    def until(self, log_ms: int) -> int | None:
        """When the policy that holds at a moment is followed by the next; None: it is not."""
        at = bisect_right(self._times, log_ms)
        return self._times[at] if at < len(self._times) else None


def differences(old: Policy, new: Policy) -> tuple[tuple[str, str, str], ...]:
    """Keys whose values differ, with both values as YAML would say them."""
    before, after = _flat(msgspec.to_builtins(old)), _flat(msgspec.to_builtins(new))
    keys = sorted(before.keys() | after.keys())
    return tuple(
        (key, before.get(key, "nothing"), after.get(key, "nothing"))
        for key in keys
        if before.get(key) != after.get(key)
    )


def _flat(value: Any, path: str = "") -> dict[str, str]:
    """Leaves of a document by dotted path; a list is a leaf of its own."""
    if isinstance(value, dict) and value:
        found: dict[str, str] = {}
        for key, below in value.items():
            found |= _flat(below, f"{path}.{key}" if path else str(key))
        return found
    if isinstance(value, bool):
        return {path: "true" if value else "false"}
    if isinstance(value, (dict, list, tuple)):
        return {path: msgspec.json.encode(value).decode()}
    return {path: str(value)}


def _parse(text: str, name: str) -> Policy | None:
    try:
        return policy.parse(text, name)
    except BadPolicy:
        return None
