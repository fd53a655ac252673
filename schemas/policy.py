"""The policy: every threshold of the product, typed, with units in names and ranges checked.

Read from YAML by `parse`, strictly: an unknown key, a wrong type or a value out of range is
refused, naming file, key and allowed range. `digest` names a policy in every decision. The
shipped defaults are the field defaults here, written out in `agents/policies/default.yaml`.
"""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Any

import msgspec
import yaml
from msgspec import Meta, Struct, inspect

from schemas.errors import BadPolicy

MAX_POLICY_BYTES = 256 * 1024
NAME_PATTERN = r"^[0-9A-Za-z._-]{1,64}\Z"
Name = Annotated[str, Meta(pattern=NAME_PATTERN)]
Percent = Annotated[int, Meta(ge=0, le=100)]
Permille = Annotated[int, Meta(ge=0, le=1000)]
Milli = Annotated[int, Meta(ge=0, le=4_096_000)]
Ms = Annotated[int, Meta(ge=0, le=86_400_000)]
PositiveMs = Annotated[int, Meta(ge=100, le=86_400_000)]


class _Part(Struct, frozen=True, forbid_unknown_fields=True):
    """A section of the policy: unknown keys are refused."""


class Loop(_Part, frozen=True):
    """Periods of the loop itself and how long silence is forgiven."""

    tick_ms: PositiveMs = 1_000
    command_ttl_ms: PositiveMs = 30_000
    refresh_ms: PositiveMs = 60_000  # a standing command is said again
    report_ms: PositiveMs = 10_000  # reservations and signals, at most once a node
    silent_after_ms: PositiveMs = 3_000  # older than this: hold, offer nothing new
    withdraw_after_ms: PositiveMs = 900_000  # the peer's degrade: 15 minutes
    forget_after_ms: PositiveMs = 3_600_000  # state of a vanished node is collected


class Suppress(_Part, frozen=True):
    """CPU of best-effort work: capacity x threshold - online - max(system, reserved)."""

    enabled: bool = True
    threshold_percent: Percent = 65
    floor_milli: Milli = 10  # never less for the whole best-effort group
    floor_percent: Percent = 0
    ignore_permille: Permille = 10  # of capacity: smaller changes are not written
    raise_permille: Permille = 100  # of capacity: the largest step up


class EvictMemory(_Part, frozen=True):
    """Memory's last gate: at the threshold, free down to the lower mark."""

    enabled: bool = True
    threshold_percent: Percent = 70
    lower_percent: Percent = 68
    cooldown_ms: PositiveMs = 4_000
    dry_run: bool = False


class CapacityRule(_Part, frozen=True):
    """Batch capacity by the usage policy, with its margins and its manners."""

    enabled: bool = True
    cpu_reclaim_percent: Percent = 60
    memory_reclaim_percent: Percent = 65
    change_permille: Permille = 100  # publish beyond this change
    refresh_ms: PositiveMs = 300_000
    raise_permille_per_min: Annotated[int, Meta(ge=1, le=60_000)] = 100  # of node capacity


class ReservationRule(_Part, frozen=True):
    """Short-term and long-term reservation: peaks of a window, and a margin."""

    short_margin_percent: Percent = 10
    long_margin_percent: Percent = 20
    warm_ms: Ms = 300_000  # shorter history: capacity holds at what is lent


class Interference(_Part, frozen=True):
    """Robust z-score of each online pod against its own last hour."""

    enabled: bool = True
    history_ms: Ms = 600_000  # at least so much history
    ill_score_permille: Annotated[int, Meta(ge=500, le=1_000_000)] = 6_000
    ill_points: Annotated[int, Meta(ge=1, le=60)] = 2  # points of 10 s in a row


class Blast(_Part, frozen=True):
    """How much may go wrong at once, fleet-wide."""

    evictions_permille: Annotated[int, Meta(ge=0, le=1000)] = 1  # of the fleet's nodes a cool-down
    stop_ill_permille: Permille = 550
    facts_stale_ms: PositiveMs = 10_000


class Policy(_Part, frozen=True):
    """The whole document; `name` is its key on the topic."""

    name: Name = "default"
    loop: Loop = Loop()
    suppress: Suppress = Suppress()
    evict_memory: EvictMemory = EvictMemory()
    capacity: CapacityRule = CapacityRule()
    reservation: ReservationRule = ReservationRule()
    interference: Interference = Interference()
    blast: Blast = Blast()


def parse(text: str | bytes, source: str) -> Policy:
    """The policy in ``text``. Raises BadPolicy naming ``source``, the key and the allowed range."""
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
        raise BadPolicy(f"{source}: empty; write at least `name: default`")
    try:
        policy = msgspec.convert(document, Policy)
    except msgspec.ValidationError as error:
        complaint = _complaint(document, _SHAPE, "") or str(error)
        raise BadPolicy(f"{source}: {complaint}") from None
    _check(policy, source)
    return policy


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
    return ""


def _allowed(value: Any, shape: inspect.Type) -> str:
    """What a plain key takes, when ``value`` is not that; "" when it is."""
    if isinstance(shape, inspect.IntType):
        low, high = shape.ge or 0, shape.le or 0
        fits = type(value) is int and low <= value <= high
        return "" if fits else f"a whole number from {low} to {high}"
    if isinstance(shape, inspect.BoolType):
        return "" if isinstance(value, bool) else "true or false"
    fits = isinstance(value, str) and re.match(NAME_PATTERN, value) is not None
    return "" if fits else "letters, digits, dots, dashes and underscores, 1 to 64 of them"


def _check(policy: Policy, source: str) -> None:
    """Rules between keys."""
    evict = policy.evict_memory
    if evict.lower_percent >= evict.threshold_percent:
        raise BadPolicy(
            f"{source}: evict_memory.lower_percent is {evict.lower_percent}; allowed: 0 to "
            f"threshold_percent - 1 = {evict.threshold_percent - 1}"
        )
    loop = policy.loop
    if loop.command_ttl_ms < 3 * loop.tick_ms:
        raise BadPolicy(
            f"{source}: loop.command_ttl_ms is {loop.command_ttl_ms}; allowed: at least three "
            f"ticks, {3 * loop.tick_ms}"
        )
    if not loop.silent_after_ms < loop.withdraw_after_ms <= loop.forget_after_ms:
        raise BadPolicy(
            f"{source}: loop.silent_after_ms < withdraw_after_ms <= forget_after_ms must hold, "
            f"not {loop.silent_after_ms}, {loop.withdraw_after_ms}, {loop.forget_after_ms}"
        )


_SHAPE = inspect.type_info(Policy)


def digest(policy: Policy) -> str:
    """16 hex digits of the policy's content; equal documents, however written, agree."""
    return hashlib.sha256(msgspec.json.encode(policy, order="sorted")).hexdigest()[:16]
