"""Kinds of values that the sections share, each with its allowed range."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

NAME_PATTERN = r"^[0-9A-Za-z._-]{1,64}\Z"
Name = Annotated[str, Meta(pattern=NAME_PATTERN)]
Percent = Annotated[int, Meta(ge=0, le=100)]
Permille = Annotated[int, Meta(ge=0, le=1000)]
Bytes = Annotated[int, Meta(ge=0, le=1 << 50)]
Milli = Annotated[int, Meta(ge=0, le=4_096_000)]
Ms = Annotated[int, Meta(ge=0, le=86_400_000)]
PositiveMs = Annotated[int, Meta(ge=100, le=86_400_000)]
HalfLifeMs = Annotated[int, Meta(ge=3_600_000, le=604_800_000)]
Evictable = Annotated[int, Meta(ge=0, le=7999)]  # priorities up to mid
Overdraft = Annotated[int, Meta(ge=0, le=1000)]  # percent
Orders = Annotated[int, Meta(ge=0, le=100)]


class Part(Struct, frozen=True, forbid_unknown_fields=True):
    """A section of the policy: unknown keys are refused."""
