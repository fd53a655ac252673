"""A journal line as bytes and back, and whether it says what a line of its kind must.

Called by `node_agent.journal` alone. The file outlives starts and versions, and a disk or a hand
may have changed it: a line that is not sound is counted and passed over, never half believed. A
tenant may name a group with bytes that are no UTF-8: such a text stands in hex after a NUL, which
no path has.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from typing import Any, Literal

import msgspec
import orjson

from node_agent.actuators.beneath import safe_parts
from node_agent.executors.way import Executor
from schemas.records import Decider, Outcome

Line = dict[str, Any]
ITSELF = "."  # the best-effort root, in place of a group below it
_HEX = "\0"
_HEX_IN_JSON = b"\\u0000"
_NEEDED = {"cpu_quota": {"quota_us", "period_us"}, "cpu_idle": {"idle", "weight"}}
_BIT_MASK = "cpuset"  # its values have numbers for names


class _Boot(msgspec.Struct):
    boot: str
    kernel_boot: str


class _Original(msgspec.Struct):
    root: str
    knob: str
    group: str
    values: dict[str, int]


class _Gone(msgspec.Struct):
    root: str
    knob: str
    group: str


class _Released(msgspec.Struct):
    root: str
    knob: str


class _KeptPlace(msgspec.Struct):
    unit: str
    identity: int
    root: str
    values: dict[str, str]


class _Kept(msgspec.Struct):
    knob: str
    places: dict[str, _KeptPlace]


class _Returned(msgspec.Struct):
    knob: str
    places: list[str]


class _Command(msgspec.Struct):
    id: str
    source: Literal["command", "local"]
    decider: Decider
    incarnation: int
    offset: int
    ordered: bool
    asked_milli: int
    in_force_milli: int
    granted_milli: int | None
    pods: list[str]
    outcome: Outcome
    reason: str
    dry_run: bool
    boot: str
    mono_us: int
    way: Executor = "kill"
    wait_ms: int = 0
    kills: bool = True
    since_us: int = 0
    left: dict[str, int] = {}


class _InForce(msgspec.Struct):
    in_force_milli: int | None
    granted_milli: int | None


class _Standing(msgspec.Struct):
    boot: str
    kernel_boot: str
    superseded: list[str]
    originals: dict[str, dict[str, dict[str, dict[str, int]]]]
    commands: dict[str, _Command]
    newest: dict[str, tuple[int, int]]
    granted_milli: int | None
    in_force_milli: int | None
    evicted_mono_us: int | None
    kept: dict[str, dict[str, _KeptPlace]] = {}


_KINDS: dict[str, type[msgspec.Struct]] = {
    "boot": _Boot,
    "original": _Original,
    "gone": _Gone,
    "released": _Released,
    "kept": _Kept,
    "returned": _Returned,
    "command": _Command,
    "intent": _Command,
    "in_force": _InForce,
    "standing": _Standing,
}


def dumps(line: Line) -> bytes:
    """The bytes of a line with its end. Raises TypeError for what JSON cannot say at all."""
    try:
        return orjson.dumps(line) + b"\n"
    except TypeError:
        return orjson.dumps(_each_text(line, _spelt)) + b"\n"


def loads(raw: bytes) -> Line:
    """The line, if it is sound; of a kind that this version does not know nothing is asked.

    Raises ValueError.
    """
    line: Any = orjson.loads(raw)
    if not isinstance(line, dict):
        raise ValueError("no object")  # noqa: TRY004  (one kind of error for all that is unsound)
    if _HEX_IN_JSON in raw:
        line = _each_text(line, _heard)
    kind = _KINDS.get(str(line.get("kind")))
    if kind is not None:
        found = msgspec.convert(line, kind)
        if isinstance(found, (_Original, _Gone)):
            _check_place(found.root, found.group)
        if isinstance(found, _Original):
            _check_values(found.knob, found.values)
        if isinstance(found, _Standing):
            for root, knobs in found.originals.items():
                for knob, groups in knobs.items():
                    for group, values in groups.items():
                        _check_place(root, group)
                        _check_values(knob, values)
    said: Line = line
    return said


def _check_place(root: str, group: str) -> None:
    safe_parts(root)
    if group != ITSELF:
        safe_parts(group)


def _check_values(knob: str, values: dict[str, int]) -> None:
    if not _NEEDED.get(knob, set()) <= values.keys():
        raise ValueError(f"{knob} without {_NEEDED[knob] - values.keys()}")
    if knob == _BIT_MASK and not all(name.isascii() and name.isdigit() for name in values):
        raise ValueError(f"{knob}: {sorted(values)}")


def _each_text(value: Any, change: Callable[[str], str]) -> Any:
    """The same value with every text in it changed."""
    if isinstance(value, str):
        return change(value)
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, dict):
        return {_each_text(k, change): _each_text(v, change) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_each_text(each, change) for each in value]
    return value


def _spelt(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return _HEX + os.fsencode(text).hex()
    return text


def _heard(text: str) -> str:
    return os.fsdecode(bytes.fromhex(text[1:])) if text.startswith(_HEX) else text
