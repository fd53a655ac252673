"""Policies in words: a headline, one line of the history, what differs, what holds on a node.

Called by `streams.policy_cli`; pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import orjson
import yaml

from schemas import policy as policies
from schemas.errors import BadPolicy
from schemas.policy import ANNOTATION, Policy
from schemas.records import Inventory, PolicyRecord
from streams import stages
from streams.printable import one_line

AUTHOR_WIDTH = 16


@dataclass(frozen=True, slots=True)
class OnNode:
    """What holds on one node, and why."""

    node: str
    version: int
    digest: str
    canary: bool
    stage: str
    means: str  # the stage, and what to do next
    layers: list[str]
    refused: list[str]
    policy: dict[str, Any]


def on_node(record: PolicyRecord, inventory: Inventory) -> OnNode:
    """The effective policy of a node under ``record``. Raises BadPolicy."""
    both = policies.published(record)
    labels = policies.named(inventory.node, inventory.labels)
    policy = both.on(labels)
    reach = policies.reach(policy, labels, inventory.annotations.get(ANNOTATION, ""))
    found = policies.effective(policy, reach)
    stage = stages.CONTROL if reach.control else found.policy.rollout.stage
    said = msgspec.to_builtins(found.policy)
    for used_up in ("nodes", "control_group"):
        del said[used_up]
    return OnNode(
        node=inventory.node,
        version=record.version,
        digest=both.digest,
        canary=policy is both.trial,
        stage=stage,
        means=stages.means(stage, trial=both.trial is not None),
        layers=policies.layers_of(policy, reach),
        refused=list(found.refused),
        policy=said,
    )


def node_text(found: OnNode) -> str:
    """It in words, and the policy as YAML."""
    canary = ", in the canary" if found.canary else ""
    version = f"version {found.version}{canary}, digest {found.digest}"
    head = [
        f"# node {found.node}: {version}, stage {found.stage}",
        f"# {found.means}",
        f"# layers: {' < '.join(found.layers)}",
        *(f"# refused: {' '.join(each.split())}" for each in found.refused),
    ]
    body = yaml.safe_dump(found.policy, sort_keys=False)
    return "\n".join([*head, body.rstrip("\n")])


def dumped(found: OnNode) -> str:
    """It as one JSON document."""
    return orjson.dumps(found, option=orjson.OPT_INDENT_2).decode()


def where(record: PolicyRecord) -> str:
    """On which nodes a record's text holds; "" for all."""
    if not record.canary:
        return ""
    match = ", ".join(f"{key}={value}" for key, value in sorted(record.canary.items()))
    return f" on the canary {match}"


def headline(record: PolicyRecord) -> str:
    """The lines above a text: the second is missing from one that may not run."""
    by = record.author or "?"
    named = f"# version {record.version}, digest {record.digest}, by {by}{where(record)}"
    try:
        return f"{named}\n# {stages.told(policies.published(record))}"
    except BadPolicy:
        return named


def line(record: PolicyRecord) -> str:
    """One line of the history."""
    marks = (" [forced]" if record.forced else "") + where(record)
    author = f"{record.author:{AUTHOR_WIDTH}}"
    return one_line(f"{record.version:4} {record.digest} {author} {record.note}{marks}")


def differences(before: Policy, after: Policy) -> list[tuple[str, Any, Any]]:
    """(key, old, new) of every key whose values differ, defaults included; None: not there."""
    old, new = dict(_flat(msgspec.to_builtins(before))), dict(_flat(msgspec.to_builtins(after)))
    keys = [*old, *(key for key in new if key not in old)]
    return [(k, old.get(k), new.get(k)) for k in keys if old.get(k) != new.get(k)]


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves by dotted key; entries go by their names."""
    if isinstance(value, dict):
        for key, below in value.items():
            yield from _flat(below, f"{path}.{key}" if path else key)
    elif isinstance(value, list | tuple) and value and all(_is_entry(each) for each in value):
        for each in value:
            yield from _flat(each, f"{path}[{each['name']}]")
    else:
        yield path, list(value) if isinstance(value, tuple) else value


def _is_entry(value: Any) -> bool:
    return isinstance(value, dict) and "name" in value
