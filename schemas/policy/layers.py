"""What holds on one node: cluster < selector entries < the node's annotation < its labels < stage.

`agents.law` groups nodes by their `Reach` and asks `effective` once for each group; the command
line asks it for one node. A layer of the node's own that is bad is left out and named; what the
policy itself says was refused before (`check_entries`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from schemas.errors import BadPolicy
from schemas.policy.document import PER_NODE, Policy
from schemas.policy.merge import laid
from schemas.policy.partial import Changes, changes_of
from schemas.policy.reading import load, said_by_node
from schemas.policy.rollout import staged

OWN = "slackwater.io/"
"""Prefix of a node's own labels and annotations; a label is ``slackwater.io/section.key``."""
ANNOTATION = f"{OWN}policy"
NUMBER = r"-?[0-9]{1,18}"
NAME_LABEL = f"{OWN}node"
"""Every node carries its name under this label, whatever its inventory says."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Which layers of a policy reach a node; nodes of equal reach share one effective policy."""

    entries: tuple[int, ...] = ()
    control: bool = False
    annotation: str = ""
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Effective:
    """The policy of a node as its deciders read it, and what was refused on the way."""

    policy: Policy
    refused: tuple[str, ...] = ()


def carries(labels: Mapping[str, str], match: Mapping[str, str]) -> bool:
    """Whether every label of ``match`` is there with its value; nothing to match matches none."""
    return bool(match) and all(labels.get(key) == value for key, value in match.items())


def named(node: str, labels: Mapping[str, str]) -> dict[str, str]:
    """The labels of a node as selectors see them: its name is one of them."""
    return {**labels, NAME_LABEL: node}


def reach(policy: Policy, labels: Mapping[str, str], annotation: str) -> Reach:
    """The layers of ``policy`` for a node with these labels (`named`) and this annotation."""
    entries = tuple(i for i, entry in enumerate(policy.nodes) if carries(labels, entry.match))
    own = sorted((key, value) for key, value in labels.items() if _is_own(key))
    return Reach(entries, carries(labels, policy.control_group), annotation, tuple(own))


def effective(policy: Policy, found: Reach) -> Effective:
    """The policy under ``found``; its own entries and control group are used up."""
    result = structs.replace(policy, nodes=(), control_group={})
    refused: list[str] = []

    def lay(below: Policy, changes: Changes, source: str) -> Policy:
        try:
            return laid(below, changes, source)
        except BadPolicy as error:
            refused.append(str(error))
            return below

    for i in found.entries:
        entry = policy.nodes[i]
        result = lay(result, changes_of(entry, PER_NODE), f"nodes[{i}] {entry.name}")
    for source, text, label in _own_layers(found):
        try:
            document = _of_label(label, text) if label else load(text, source)
            changes = said_by_node(document, source)
        except BadPolicy as error:
            refused.append(str(error))
        else:
            result = lay(result, changes, source)
    sections = {name: getattr(result, name) for name in result.__struct_fields__}
    changes = staged(result.rollout.stage, sections, control=found.control)
    return Effective(structs.replace(result, **changes), tuple(refused))


def layers_of(policy: Policy, found: Reach) -> list[str]:
    """The layers that reach a node, the stronger last, in words."""
    entries = [f"nodes[{i}] {policy.nodes[i].name}" for i in found.entries]
    own = [source for source, _, _ in _own_layers(found)]
    control = ["control group"] if found.control else []
    return ["cluster", *entries, *own, *control]


def _own_layers(found: Reach) -> list[tuple[str, str, str]]:
    """(source, text, label key) of what a node says itself, the stronger last."""
    layers = [(f"annotation {ANNOTATION}", found.annotation, "")] if found.annotation else []
    return [*layers, *((f"label {key}", value, key) for key, value in found.labels)]


def _is_own(key: str) -> bool:
    return key.startswith(OWN) and "." in key[len(OWN) :]


def _of_label(key: str, value: str) -> dict[str, Any]:
    """The document that one label stands for: a whole number, true or false, or a word."""
    *path, name = key[len(OWN) :].split(".")
    said: Any = {"true": True, "false": False}.get(value, value)
    if re.fullmatch(NUMBER, value):
        said = int(value)
    document: dict[str, Any] = {name: said}
    for part in reversed(path):
        document = {part: document}
    return document
