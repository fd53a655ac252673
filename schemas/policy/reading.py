"""A policy out of YAML, strictly: an unknown key, a wrong type, a value out of range is refused.

Called through `schemas.policy.parse`, and by the bridge's admission for a document of its own; a
refusal names the source, the key and what is allowed.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
import yaml
from msgspec import inspect

from schemas.errors import BadPolicy
from schemas.policy.check import check
from schemas.policy.document import BY_NODE, NodeSaid, Policy
from schemas.policy.merge import check_entries
from schemas.policy.partial import (
    LABEL_KEY_CHARACTERS,
    LABEL_VALUE_CHARACTERS,
    Changes,
    changes_of,
)
from schemas.policy.units import NAME_PATTERN

MAX_POLICY_BYTES = 256 * 1024


def parse(text: str | bytes, source: str) -> Policy:
    """The policy in ``text``. Raises BadPolicy naming ``source``, the key and the allowed range."""
    return of_document(load(text, source), source)


def of_document(document: Any, source: str) -> Policy:
    """The policy of a document that `load` gave. Raises BadPolicy."""
    policy: Policy = convert(document, Policy, source)
    check(policy, source)
    check_entries(policy, source)
    return policy


def check_keys(document: Any, source: str) -> None:
    """Each key of a document by itself, as of a part of a policy. Raises BadPolicy."""
    convert(document, Policy, source)


def said_by_node(document: Any, source: str) -> Changes:
    """What a node says for itself: partial sections of those it may change. Raises BadPolicy."""
    return changes_of(convert(document, NodeSaid, source), BY_NODE)


def load(text: str | bytes, source: str, least: str = "name: default") -> Any:
    """The document in ``text`` as plain values, unchecked. Raises BadPolicy when it is no YAML.

    ``least``: a smallest document of its kind, for whoever gave an empty one.
    """
    if len(text) > MAX_POLICY_BYTES:
        raise BadPolicy(f"{source}: {len(text)} bytes; allowed: {MAX_POLICY_BYTES}")
    try:
        document = yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        raise BadPolicy(f"{source}: not YAML: {error}") from None
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
        # PyYAML lets these out for a date that is none, a tag that does not fit, deep nesting.
        raise BadPolicy(f"{source}: not YAML: {type(error).__name__}: {error}") from None
    if document is None:
        raise BadPolicy(f"{source}: empty; write at least `{least}`")
    return document


def convert(document: Any, kind: Any, source: str) -> Any:
    """A document as ``kind``, a `Part`, strictly. Raises BadPolicy naming the first bad key."""
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        # Asked for here and not at import: half a megabyte that a good policy does without.
        complaint = _complaint(document, inspect.type_info(kind), "") or str(error)
        raise BadPolicy(f"{source}: {complaint}") from None


class _StrictLoader(yaml.SafeLoader):
    """PyYAML's safe loader, refusing a key that is written twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key.value} is written twice", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def _complaint(document: Any, shape: inspect.Type, path: str) -> str:
    """What is wrong with the first bad key, with what is allowed there; "" when nothing is."""
    if isinstance(shape, inspect.UnionType):  # a part that may be left out
        if document is None:
            return ""
        shape = next(one for one in shape.types if not isinstance(one, inspect.NoneType))
    if isinstance(shape, inspect.VarTupleType):
        return _complaint_of_list(document, shape, path)
    if not isinstance(shape, inspect.StructType):
        allowed = _allowed(document, shape)
        return f"{path} is {document!r:.60}; allowed: {allowed}" if allowed else ""
    fields = {field.name: field.type for field in shape.fields}
    if not isinstance(document, dict):
        where = path or "the document"
        return f"{where} is {document!r:.60}; allowed: a mapping with keys {', '.join(fields)}"
    for key, value in document.items():
        below = f"{path}.{key}" if path else f"{key}"
        if key not in fields:
            return f"{below:.80} is no key of the policy; allowed: {', '.join(fields)}"
        found = _complaint(value, fields[key], below)
        if found:
            return found
    for field in shape.fields:
        if field.required and field.name not in document:
            return f"{path}.{field.name} is missing; allowed: it must be there"
    return ""


def _complaint_of_list(document: Any, shape: inspect.VarTupleType, path: str) -> str:
    most = shape.max_length
    if not isinstance(document, list) or len(document) > (most or len(document)):
        allowed = "a list" if most is None else f"a list of at most {most} items"
        return f"{path} is {document!r:.60}; allowed: {allowed}"
    found = (_complaint(item, shape.item_type, f"{path}[{i}]") for i, item in enumerate(document))
    return next(filter(None, found), "")


def _allowed(value: Any, shape: inspect.Type) -> str:
    """What a plain key takes, when ``value`` is not that; "" when it is."""
    if isinstance(shape, inspect.IntType):
        low, high = shape.ge or 0, shape.le or 0
        fits = type(value) is int and low <= value <= high
        return "" if fits else f"a whole number from {low} to {high}"
    if isinstance(shape, inspect.BoolType):
        return "" if isinstance(value, bool) else "true or false"
    if isinstance(shape, inspect.LiteralType):
        known = isinstance(value, str) and value in shape.values
        return "" if known else " or ".join(str(name) for name in shape.values)
    if isinstance(shape, inspect.DictType):
        low, high = shape.min_length or 0, shape.max_length or 0
        fits = isinstance(value, dict) and low <= len(value) <= high
        fits = fits and all(_is_label(*pair) for pair in value.items())
        return "" if fits else f"a mapping of {low} to {high} labels to their values, both text"
    return _allowed_text(value, shape)


def _allowed_text(value: Any, shape: inspect.Type) -> str:
    if isinstance(shape, inspect.StrType) and shape.pattern is None:
        low, high = shape.min_length or 0, shape.max_length or 0
        fits = isinstance(value, str) and low <= len(value) <= high
        return "" if fits else f"text of {low} to {high} characters"
    fits = isinstance(value, str) and re.match(NAME_PATTERN, value) is not None
    return "" if fits else "letters, digits, dots, dashes and underscores, 1 to 64 of them"


def _is_label(key: Any, value: Any) -> bool:
    return (
        isinstance(key, str)
        and isinstance(value, str)
        and 1 <= len(key) <= LABEL_KEY_CHARACTERS
        and len(value) <= LABEL_VALUE_CHARACTERS
    )
