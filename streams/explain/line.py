"""Why something was decided: one decision about one node, with its figures, rule and causes. Pure.

Every question ends in `Line`s; `standing` gives the newest of each decider about a node, others
are found by `streams.explain.acts`. No state is needed, because every decision carries its
figures, its rule's reason and its cause.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from schemas.records import Ack, Capacity, Cause, Command, Decision
from streams.explain import node_words
from streams.explain.past import Past, Place
from streams.explain.words import RULES, Seen, because, sentence

SAID_AGAIN = ("refresh", "steady")
"""Reasons of decisions that only repeat the one before."""


@dataclass(frozen=True, slots=True)
class Became:
    """What node or bridge said of it; ``in_force_milli`` -1: not said."""

    log_ms: int
    outcome: str
    reason: str
    sentence: str
    in_force_milli: int = -1


@dataclass(frozen=True, slots=True)
class Line:
    """One answer. ``what``: decision, command, local act or eviction.

    ``cause``: what was decided from; of a local act the sample that the node folded itself.
    ``said``: where the record stands that says so. ``policy_by``: who published it and what for.
    """

    decider: str
    log_ms: int
    reason: str
    sentence: str
    rule: str
    terms: dict[str, int]
    policy: str  # digest
    policy_version: int | None
    cause: Cause | None
    command_id: str = ""
    since_ms: int | None = None  # of the decision that this one only repeats
    since_reason: str = ""
    what: str = "decision"
    node: str = ""
    policy_by: str = ""
    policy_ms: int | None = None  # when it was published
    pods: tuple[str, ...] = ()
    said: Place | None = None
    became: tuple[Became, ...] = ()


def standing(past: Past, node: str) -> list[Line]:
    """The newest line of each decider about a node, the newest first."""
    newest: dict[str, tuple[Place, Decision, int]] = {}
    meant: dict[str, tuple[Place, Decision, int]] = {}  # no mere repetition
    for place, decision in past.decisions:
        at = _index(past, decision, node)
        if at is None:
            continue
        _newer(newest, (place, decision, at))
        if decision.outcome[at] not in SAID_AGAIN:
            _newer(meant, (place, decision, at))
    found = []
    for decider, each in newest.items():
        line, since = of_decision(past, *each, node=node), meant.get(decider)
        if since is not None and since[1] is not each[1]:
            began = since[1].cause.log_ms
            line = replace(line, since_ms=began, since_reason=since[1].outcome[since[2]])
        found.append(line)
    return sorted(found, key=lambda line: (-line.log_ms, line.decider))


def of_decision(past: Past, place: Place, decision: Decision, at: int, node: str = "") -> Line:
    """The line of one node of a decision; what went out with it is told with it."""
    ids = decision.command_ids
    command_id = ids[at] if ids else ""
    known = past.commands.get(command_id)
    name = decision.nodes[at] or node
    seen = Seen(
        name,
        decision.decider,
        decision.outcome[at],
        {term: values[at] for term, values in decision.columns.items()},
        known[1] if known else None,
        _capacity(past, name, decision),
        past.places(name, decision.cause),
    )
    return _line(past, "decision", seen, decision.cause, command_id, place)


def of_command(past: Past, place: Place, command: Command) -> Line:
    """The line of a command: by the audit log, and where that is not there by itself."""
    beside = past.decided(command.id)
    if beside is not None:
        line = of_decision(past, *beside)
        return replace(line, what="command", said=place)
    seen = Seen(command.node, command.decider, command.reason, command.terms, command)
    return _line(past, "command", seen, command.cause, command.id, place)


def _line(past: Past, what: str, seen: Seen, cause: Cause, command_id: str, place: Place) -> Line:
    policy = past.policies.of(cause.policy, cause.log_ms)
    return Line(
        decider=seen.decider,
        log_ms=cause.log_ms,
        reason=seen.reason,
        sentence=sentence(seen),
        rule=RULES.get(seen.decider, ""),
        terms=dict(seen.terms),
        policy=cause.policy,
        policy_version=policy.record.version if policy else None,
        cause=cause,
        command_id=command_id,
        what=what,
        node=seen.node,
        policy_by=policy.by if policy else "",
        policy_ms=policy.log_ms if policy and policy.log_ms >= 0 else None,
        pods=seen.command.pods if seen.command else (),
        said=place,
        became=became(past, command_id),
    )


def became(past: Past, command_id: str) -> tuple[Became, ...]:
    """What node and bridge said of a command, in the order of the log."""
    found = []
    for place, said in past.answers(command_id):
        in_force = said.in_force_milli if isinstance(said, Ack) else -1
        told = node_words.became(said.outcome, said.reason, in_force)
        found.append(Became(place.log_ms, said.outcome, said.reason, told, in_force))
    return tuple(found)


def told(line: Line) -> str:
    """A line as text: the sentence, where it comes from, and what became of it."""
    since = ""
    if line.since_ms is not None:
        since = f" In force since {clock(line.since_ms)}: {because(line.since_reason)}."
    text = line.sentence[:1].upper() + line.sentence[1:]
    head = line.decider if line.what in ("decision", "command") else f"{line.what}, {line.decider}"
    reason = f"reason {line.reason}, " if line.reason else ""
    said = [
        f"{clock(line.log_ms)} {head}: {text}{since}",
        f"  {reason}{policy_of(line)}, {cause_of(line)}{signed_of(line)}",
    ]
    said += [f"  rule: {line.rule}"] * bool(line.rule)
    said += [f"  {clock(each.log_ms)} {each.sentence}" for each in line.became]
    return "\n".join(said)


def policy_of(line: Line) -> str:
    """The policy behind a line, and who published it when and what for."""
    if not line.policy:
        return "no policy"
    version = line.policy_version
    known = "unknown version" if version is None else f"version {version}"
    when = f", published {clock(line.policy_ms)}" if line.policy_ms is not None else ""
    return f"policy {known} ({line.policy}){when}{line.policy_by}"


def cause_of(line: Line) -> str:
    """Which record of the log it follows from."""
    if line.cause is not None:
        return f"cause samples/{line.cause.partition} offset {line.cause.offset}"
    if line.said is not None:
        return f"said in {line.said.topic}/{line.said.partition} offset {line.said.offset}"
    return "cause unknown"


def signed_of(line: Line) -> str:
    """Whose key it is signed with, and whether that was checked."""
    said = line.said
    if said is None or (said.signer is None and not said.doubt):
        return ""
    key = f", signed with key {said.signer}" if said.signer else ""
    if said.doubt:
        return f"{key}, NOT BELIEVED: {said.doubt}"
    return f"{key} (checked)" if said.doubt == "" else key


def clock(log_ms: int) -> str:
    """Log time in UTC, to the second."""
    return datetime.fromtimestamp(log_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _capacity(past: Past, node: str, decision: Decision) -> Capacity | None:
    """The record that was published with a decision about capacity."""
    if decision.decider != "capacity":
        return None
    cause = decision.cause
    found = (each for _, each in past.capacities.get(node, []) if each.cause == cause)
    return next(found, None)


def _index(past: Past, decision: Decision, node: str) -> int | None:
    """Which entry of a decision is about a node, the last; one of its whole partition is, too."""
    home = past.partition_of.get(node, decision.cause.partition)
    if decision.cause.partition != home:
        return None
    named = [i for i, name in enumerate(decision.nodes) if name in (node, "")]
    return named[-1] if named else None


def _newer(kept: dict[str, tuple[Place, Decision, int]], one: tuple[Place, Decision, int]) -> None:
    held = kept.get(one[1].decider)
    if held is None or _order(one[1].cause) >= _order(held[1].cause):
        kept[one[1].decider] = one


def _order(cause: Cause) -> tuple[int, int]:
    return cause.incarnation, cause.offset
