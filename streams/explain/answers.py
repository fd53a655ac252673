"""Each question's answer, as a document and as text. Pure; `streams.explain.cli` asks.

A question without an answer raises `NoAnswer`, which says where to look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from schemas.errors import BadPolicy
from schemas.policy import published
from schemas.records import PodFact
from streams import stages
from streams.explain import capacity
from streams.explain import pod as pod_story
from streams.explain.acts import Folded, by_cause, by_command, every, last_act
from streams.explain.capacity import Wish
from streams.explain.line import clock, standing, told
from streams.explain.past import Past
from streams.explain.words import cores, size
from streams.policy_text import on_node

QUIET = ("observe", stages.CONTROL)
"""Stages in which nothing may have been decided about a node."""
FURTHER = "look further back with --minutes; one that nobody knows has none"
NODES_TOLD = 20


class NoAnswer(Exception):
    """Nothing was found; the message says where else to look."""

    says_what_to_do = True


@dataclass(frozen=True, slots=True)
class Answer:
    """``document``: for --json; ``text``: for people."""

    document: dict[str, Any]
    text: list[str]


def of_node(past: Past, node: str, samples: Folded) -> Answer:
    """The newest decision of each decider about a node, and what it last did by itself."""
    stage, means = _stage(past, node)
    lines, own = standing(past, node), last_act(past, node, samples)
    if not lines and stage not in QUIET:
        raise NoAnswer(f"no decision about node {node} in the time before that: {FURTHER}")
    if own is None and node not in past.partition_of and not _is_named(past, node):
        raise NoAnswer(f"nothing is known of a node {node}: {FURTHER}")
    document = {
        "node": node, "at_ms": past.at_ms, "stage": means, "decisions": lines, "last_act": own,
    }  # fmt: skip
    text = [f"{node} now: {means}", *map(told, lines)]
    return Answer(document, text + ([told(own)] if own else []))


def _is_named(past: Past, node: str) -> bool:
    """Whether anything is about this very node; a decision of a whole partition is about any."""
    if past.sets.of_node(node, past.at_ms) is not None:
        return True
    return any(node in decision.nodes for _, decision in past.decisions)


def _stage(past: Past, node: str) -> tuple[str, str]:
    """The stage of a node, and in words; of the cluster where no inventory is left of it."""
    newest, facts = past.policies.at(past.at_ms), past.sets.of_node(node, past.at_ms)
    if newest is None:
        return "", stages.NO_POLICY
    if facts is None:
        fleet = stages.told(published(newest.record))
        return "", f"it has no inventory; the fleet: {fleet}"
    try:
        found = on_node(newest.record, facts)
    except BadPolicy as error:
        return "", f"its policy cannot be read: {error}"
    return found.stage, found.means


def of_command(past: Past, command_id: str) -> Answer:
    """One command."""
    lines = by_command(past, command_id)
    if not lines:
        raise NoAnswer(f"no command {command_id} in the time before that: {FURTHER}")
    return Answer({"command": command_id, "decisions": lines}, list(map(told, lines)))


def of_cause(past: Past, partition: int, offset: int) -> Answer:
    """All that one record of `samples` led to."""
    lines = by_cause(past, partition, offset)
    if not lines:
        raise NoAnswer(
            f"nothing was decided from samples/{partition} offset {offset}: most samples change "
            "nothing; else look further back with --minutes"
        )
    return Answer({"cause": [partition, offset], "decisions": lines}, list(map(told, lines)))


def of_pods(past: Past, samples: Folded, pods: Iterable[tuple[str, PodFact]]) -> Answer:
    """One pod, or all of a name."""
    stories = [pod_story.story(past, node, pod, samples, past.at_ms) for node, pod in pods]
    text: list[str] = []
    for one in stories:
        text.append(one.sentence[:1].upper() + one.sentence[1:])
        text += [told(line) for line in (*one.lines, *one.bounds)]
    return Answer({"at_ms": past.at_ms, "pods": stories}, text)


def of_capacity(past: Past, node: str, now_ms: int, before_ms: int) -> Answer:
    """What changed between two moments."""
    found = capacity.compare(past, node, now_ms, before_ms)
    if found is None:
        raise NoAnswer(
            f"capacity of node {node} is not known at {clock(before_ms)} or at {clock(now_ms)}: "
            "nothing was published by then, or it lies further back than --minutes"
        )
    old, new = found.cause_before, found.cause_now
    text = [
        f"{node} at {clock(found.before_ms)} and at {clock(found.now_ms)}:",
        *(f"  {each.sentence}" for each in found.changed if each.now or each.before or each.terms),
        f"  {found.sentence}",
        *(f"  {line}" for line in found.policy),
        f"  cause samples/{old.partition} offset {old.offset}, and offset {new.offset}",
    ]
    return Answer({"capacity": found}, text)


def not_scheduled(past: Past, named: str, wish: Wish, found: list[tuple[str, PodFact]]) -> Answer:
    """Why a pod, or so much work, is placed nowhere: node by node."""
    running = [
        f"{named} runs on {node}, as its node says"
        for node, pod in found
        if (facts := past.sets.of_node(node, past.at_ms)) and pod in facts.pods
    ]
    offers = capacity.offers(past, wish, past.at_ms)
    if not offers:
        raise NoAnswer(f"no node is known in the time before that: {FURTHER}")
    fits = [offer for offer in offers if not offer.why]
    kind = "mid" if wish.mid else "batch"
    wanted = f"{cores(wish.cpu_milli)} cores and {size(wish.memory_bytes)} of {kind}"
    refused = [
        (place, grant)
        for place, grant in past.grants
        if not grant.granted and named in (grant.claim, grant.scheduler)
    ]
    text = [*running, f"{named} wants {wanted}: it fits on {len(fits)} of {len(offers)} nodes"]
    text += [
        f"  {offer.node}: "
        + ("; ".join(offer.why) or f"{cores(offer.offered_milli - offer.lent_milli)} cores left")
        for offer in offers[:NODES_TOLD]
    ]
    if len(offers) > NODES_TOLD:
        text.append(f"  and {len(offers) - NODES_TOLD} nodes more, see --json")
    text += [
        f"  {clock(place.log_ms)} {grant.scheduler} was refused {grant.claim} on {grant.node}: "
        f"{grant.reason}"
        for place, grant in refused
    ]
    if fits:
        text.append("  where it fits and is not placed, its scheduler or its quota says why")
    document = {
        "wanted": named, "wish": wish, "at_ms": past.at_ms, "running": running,
        "fits": len(fits), "nodes": offers, "refused": [grant for _, grant in refused],
    }  # fmt: skip
    return Answer(document, text)


def of_every(past: Past, samples: Folded, say: Callable[[Any], None]) -> int:
    """Hand each act's line over, one after the other; how many there were."""
    count = 0
    for line in every(past, samples):
        say(line)
        count += 1
    if not count:
        raise NoAnswer(f"no command, eviction or act of a node in that time: {FURTHER}")
    return count
