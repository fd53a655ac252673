"""The newest decision of each decider about one node, before a moment. Pure.

`streams.explain_cli` hands it what it read of `decisions`, `commands`, `capacity` and `policies`;
no state is needed, because every decision carries its figures, its rule's reason and its cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from schemas.records import Capacity, Cause, Command, Decision
from streams.explain_words import RULES, Seen, because, sentence

SAID_AGAIN = ("refresh", "steady")
"""Reasons of decisions that only repeat the one before."""


@dataclass(frozen=True, slots=True)
class Line:
    """One decider's word about the node."""

    decider: str
    log_ms: int
    reason: str
    sentence: str
    rule: str
    terms: dict[str, int]
    policy: str  # digest
    policy_version: int | None
    cause: Cause
    command_id: str = ""
    since_ms: int | None = None  # of the decision that this one only repeats
    since_reason: str = ""


@dataclass(slots=True)
class Reading:
    """What was read, up to a moment; `note` each record in log order, then ask for `lines`."""

    node: str
    at_ms: int
    decisions: dict[str, tuple[Decision, int]] = field(default_factory=dict)
    meant: dict[str, tuple[Decision, int]] = field(default_factory=dict)  # no mere repetition
    commands: dict[str, Command] = field(default_factory=dict)
    capacities: dict[tuple[int, int], Capacity] = field(default_factory=dict)

    def note(self, record: Decision | Command | Capacity) -> None:
        """Take a record over, unless it is later than the moment or about others."""
        if record.cause.log_ms > self.at_ms:
            return
        if isinstance(record, Decision):
            self._decision(record)
        elif isinstance(record, Command):
            if record.node == self.node:
                self.commands[record.id] = record
        elif record.node == self.node:
            self.capacities[_order(record.cause)] = record

    def _decision(self, record: Decision) -> None:
        named = [i for i, node in enumerate(record.nodes) if node in (self.node, "")]
        if not named:
            return
        place = named[-1]
        self._newer(self.decisions, record, place)
        if record.outcome[place] not in SAID_AGAIN:
            self._newer(self.meant, record, place)

    def _newer(self, kept: dict[str, tuple[Decision, int]], record: Decision, place: int) -> None:
        held = kept.get(record.decider)
        if held is None or _order(record.cause) >= _order(held[0].cause):
            kept[record.decider] = (record, place)

    def lines(self, versions: Mapping[str, int]) -> list[Line]:
        """One line a decider, the newest first; ``versions``: policy digest -> version."""
        found = [self._line(name, versions) for name in self.decisions]
        return sorted(found, key=lambda line: (-line.log_ms, line.decider))

    def _line(self, decider: str, versions: Mapping[str, int]) -> Line:
        record, place = self.decisions[decider]
        terms = {name: values[place] for name, values in record.columns.items()}
        ids = record.command_ids
        seen = Seen(
            self.node,
            decider,
            record.outcome[place],
            terms,
            self.commands.get(ids[place]) if place < len(ids) else None,
            self.capacities.get(_order(record.cause)) if decider == "capacity" else None,
        )
        since = self.meant.get(decider)
        repeats = since is not None and since[0] is not record
        return Line(
            decider=decider,
            log_ms=record.cause.log_ms,
            reason=seen.reason,
            sentence=sentence(seen),
            rule=RULES.get(decider, ""),
            terms=terms,
            policy=record.cause.policy,
            policy_version=versions.get(record.cause.policy),
            cause=record.cause,
            command_id=ids[place] if place < len(ids) else "",
            since_ms=since[0].cause.log_ms if repeats and since else None,
            since_reason=since[0].outcome[since[1]] if repeats and since else "",
        )


def told(line: Line) -> str:
    """A line as two lines of text: the sentence, and where it comes from."""
    when = clock(line.log_ms)
    known = "unknown version" if line.policy_version is None else f"version {line.policy_version}"
    policy = f"policy {known} ({line.policy})" if line.policy else "no policy"
    since = ""
    if line.since_ms is not None:
        since = f" In force since {clock(line.since_ms)}: {because(line.since_reason)}."
    cause = f"samples/{line.cause.partition} offset {line.cause.offset}"
    text = line.sentence[:1].upper() + line.sentence[1:]
    return f"{when} {line.decider}: {text}{since}\n  reason {line.reason}, {policy}, cause {cause}"


def clock(log_ms: int) -> str:
    """Log time in UTC, to the second."""
    return datetime.fromtimestamp(log_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def versions_of(digests: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Digest -> the newest version that had it."""
    return {digest: version for digest, version in digests if digest}


def _order(cause: Cause) -> tuple[int, int]:
    return cause.incarnation, cause.offset
