"""Two records of one key, side by side: which fields differ, and what that means in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import orjson

from streams.explain.line import clock
from streams.explain.words import because
from streams.recording.segment import Record
from streams.recording.source import Source
from streams.replay.keys import OutputKey
from streams.replay.result import Difference

FIELDS = 20
"""Of one difference, so that a long column does not fill the page."""


def difference(
    source: Source, key: OutputKey, then: bytes | None, now: bytes | None, *, again: bool = False
) -> Difference:
    """``again``: both were said then, one after the other, though the key is the same."""
    old, new = _loaded(then), _loaded(now)
    kind: Literal["differs", "only_then", "only_now", "said_otherwise"] = (
        "said_otherwise" if again else "only_now" if then is None
        else "only_then" if now is None else "differs"
    )  # fmt: skip
    fields = dict(_apart(old, new)) if old is not None and new is not None else {}
    cause, log_ms = _cause(source, key)
    return Difference(
        kind, key.topic, key.partition, key.offset, log_ms, key.key.decode("utf-8", "replace"),
        key.decider, cause, _words(kind, key, old, new, fields), old, new, fields,
    )  # fmt: skip


def _loaded(value: bytes | None) -> Any:
    try:
        return None if value is None else orjson.loads(value)
    except orjson.JSONDecodeError:
        return value.hex() if value is not None else None


def _apart(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Where two JSON values differ, at most `FIELDS` places."""
    left = FIELDS
    for found in _places(old, new, path):
        if left == 0:
            return
        left -= 1
        yield found


def _places(old: Any, new: Any, path: str) -> Iterator[tuple[str, tuple[Any, Any]]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys((*old, *new)):
            yield from _places(old.get(name), new.get(name), f"{path}.{name}" if path else name)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for place, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _places(one, other, f"{path}[{place}]")
    elif old != new:
        yield path or "value", (old, new)


def _cause(source: Source, key: OutputKey) -> tuple[str, int]:
    """What was folded, in words, and its log time."""
    records = source.records("samples", key.partition, key.offset - 1, key.offset)
    record: Record | None = next(records, None)
    where = f"samples/{key.partition} offset {key.offset}"
    if record is None:
        return f"{where}, which is not recorded", 0
    who = (
        "a tick"
        if record.key is None
        else f"a sample of node {record.key.decode(errors='replace')}"
    )
    return f"{who} at {clock(record.timestamp)} ({where})", record.timestamp


def _words(
    kind: str, key: OutputKey, old: Any, new: Any, fields: dict[str, tuple[Any, Any]]
) -> str:
    name = f"{key.topic}" + (f" of {key.decider}" if key.decider else "")
    if kind == "only_then":
        return f"{name} was said then and is not now: {_why(old)}"
    if kind == "only_now":
        return f"{name} is said now and was not then: {_why(new)}"
    places = ", ".join(f"{p} {was!r} -> {now!r}" for p, (was, now) in list(fields.items())[:4])
    apart = places or "the order or the spelling of fields"
    if kind == "said_otherwise":
        return f"{name} was said twice then, and not with the same bytes: {apart}"
    sides = {"then": _why(old), "now": _why(new)}
    if sides["then"] == sides["now"]:
        return f"{name} differs in {apart}. Both: {sides['then']}"
    return f"{name} differs in {apart}. Then: {sides['then']}. Now: {sides['now']}"


def _why(said: Any) -> str:
    """The reason of a record in words; of a tick's decisions the commonest."""
    if not isinstance(said, dict):
        return "no record of ours"
    reason = said.get("reason")
    if reason is None:
        outcome = said.get("outcome") or []
        reason = max(sorted(set(outcome)), key=outcome.count, default="")
    return because(reason) if reason else "it has no reason code"
