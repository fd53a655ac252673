"""Partial sections, as selector entries and nodes say them: any key of a section, none needed.

`schemas.policy.document` makes the types from its own sections, so that a partial section is held
to the same names, types and ranges as a whole one.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from schemas.policy.units import Name, Part

LABEL_KEY_CHARACTERS, LABEL_VALUE_CHARACTERS = 317, 63  # Kubernetes: prefix/name, and value
LabelKey = Annotated[str, Meta(min_length=1, max_length=LABEL_KEY_CHARACTERS)]
LabelValue = Annotated[str, Meta(max_length=LABEL_VALUE_CHARACTERS)]
Match = Annotated[dict[LabelKey, LabelValue], Meta(min_length=1, max_length=16)]
Group = Annotated[dict[LabelKey, LabelValue], Meta(max_length=16)]
Changes = dict[str, dict[str, Any]]
"""Section -> key -> value."""


class Entry(Part, frozen=True):
    """One selector: nodes that carry every label of ``match``; the partial sections follow."""

    name: Name
    match: Match


class Partial(Part, frozen=True):
    """A partial section, or a part in one."""


class Said(Part, frozen=True):
    """What a node's annotation may change."""


def with_partials(base: type[Part], name: str, sections: dict[str, type[Part]]) -> type[Any]:
    """``base`` with each section as an optional field, whose keys are all optional."""
    fields = [(each, _partial(kind) | UnsetType, UNSET) for each, kind in sections.items()]
    return msgspec.defstruct(name, fields, bases=(base,), frozen=True, forbid_unknown_fields=True)


def changes_of(entry: Any, sections: tuple[str, ...]) -> Changes:
    """What an entry says, key by key; nothing of what it leaves out."""
    found: Changes = {}
    for section in sections:
        part = getattr(entry, section)
        if part is not UNSET:
            found[section] = _said(part)
    return found


def with_changes(part: Any, said: dict[str, Any]) -> Any:
    """``part`` with the keys of ``said``, also those of the parts in it."""
    return msgspec.structs.replace(
        part,
        **{
            key: with_changes(getattr(part, key), value) if isinstance(value, dict) else value
            for key, value in said.items()
        },
    )


def _said(part: Any) -> dict[str, Any]:
    said = msgspec.structs.asdict(part)
    return {
        key: _said(value) if isinstance(value, Partial) else value
        for key, value in said.items()
        if value is not UNSET
    }


def _partial(kind: type[Part]) -> type[Any]:
    fields = [
        (field.name, _partial_type(field.type) | UnsetType, UNSET)
        for field in msgspec.structs.fields(kind)
    ]
    return msgspec.defstruct(f"Partial{kind.__name__}", fields, bases=(Partial,), frozen=True)


def _partial_type(kind: Any) -> Any:
    return _partial(kind) if isinstance(kind, type) and issubclass(kind, Part) else kind
