"""Policies, and what nodes say of theirs, with other names in them; they mean the same.

A policy that may run is written anew without its comments; one that may not is replaced by a text
that may not. Called by `streams.recording.hiding`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import orjson

from agents.inventory import ANNOTATION_CHARACTERS, LABELS_KEPT
from schemas.errors import BadPolicy
from schemas.policy import ANNOTATION, NAME_LABEL, load, parse
from schemas.policy.layers import OWN
from schemas.policy.reading import said_by_node
from streams.recording.fields import ANNOTATIONS, LABELS, POLICY_TEXT
from streams.recording.naming import ENTRY, LABEL, NODE, POLICY, VALUE, WORKLOAD, Names

REFUSED = "withheld: it may not run"
_OWN_KEY = re.compile(r"[a-z0-9_.]{1,80}", re.ASCII)
_OWN_VALUE = re.compile(r"-?[0-9]{1,18}|[a-z_]{1,32}", re.ASCII)


def text(said: str, names: Names) -> str:
    """A whole policy."""
    if not said:
        return said
    try:
        parse(said, "policy")
        return _written(load(said, "policy"), names)
    except BadPolicy:
        return REFUSED


def _written(document: Any, names: Names) -> str:
    return orjson.dumps(document_of(document, names), option=orjson.OPT_INDENT_2).decode()


def document_of(value: Any, names: Names, name: str = POLICY) -> Any:
    """A policy as plain values; ``name``: what kind of name its key `name` holds."""
    if isinstance(value, list | tuple):
        return [document_of(one, names, ENTRY) for one in value]
    if not isinstance(value, dict):
        return value
    changed: dict[str, Any] = {}
    for key, said in value.items():
        if key in ("match", "control_group"):
            changed[key] = labels(said, names)
        elif key == "workloads":
            changed[key] = [names(WORKLOAD, one) for one in said]
        elif key == "workload":
            changed[key] = names(WORKLOAD, said)
        elif key == "name":
            changed[key] = names(name, said)
        else:
            changed[key] = document_of(said, names, ENTRY)
    return changed


def labels(said: dict[str, str], names: Names) -> dict[str, str]:
    """Labels of a node, or those that a selector asks for; ours keep their keys."""
    if len(said) > LABELS_KEPT:  # as the rules cut them, which is by names
        said = dict(sorted(said.items())[:LABELS_KEPT])
    return dict(_label(key, value, names) for key, value in said.items())


def _label(key: str, value: str, names: Names) -> tuple[str, str]:
    if key == NAME_LABEL:
        return key, names(NODE, value)
    if not key.startswith(OWN) or not _OWN_KEY.fullmatch(key.removeprefix(OWN)):
        return names(LABEL, key), names(VALUE, value)
    return key, value if _OWN_VALUE.fullmatch(value) else names(VALUE, value)


def own_annotations(said: dict[str, str], names: Names) -> dict[str, str]:
    """Of a node: the one that is ours."""
    ours = annotation(said.get(ANNOTATION, ""), names)
    return {ANNOTATION: ours} if ours else {}


def annotation(said: str, names: Names) -> str:
    """What a node says of its policy."""
    if len(said) > ANNOTATION_CHARACTERS:
        return "-" * len(said)
    if not said:
        return said
    try:
        document = load(said, "annotation")
        said_by_node(document, "annotation")
        return orjson.dumps(document_of(document, names)).decode()
    except BadPolicy:
        return REFUSED


SPECIAL: dict[str, Callable[[Any, Names], Any]] = {
    LABELS: labels,
    ANNOTATIONS: own_annotations,
    POLICY_TEXT: text,
}
