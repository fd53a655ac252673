"""Quantities as Kubernetes writes them ("250m", "1.5Gi", "2e3") as whole millicores and bytes.

Called by `node_agent.kubelet.requests` and `node_object`. Form: Kubernetes
`apimachinery/pkg/api/resource/quantity.go`; as there, what is less than one unit counts as one.
"""

from __future__ import annotations

import re

LARGEST = (1 << 62) - 1
"""More is taken for this much: sums of a few still fit a 64 bit integer of the wire."""
_FORM = re.compile(
    r"\+?(?P<whole>[0-9]{0,19})(?:\.(?P<part>[0-9]{0,19}))?"
    r"(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?\Z"
)
_CHARACTERS_MAX = 64
_BINARY = {f"{letter}i": 1 << (10 * power) for power, letter in enumerate("KMGTPE", 1)}
_DECIMAL = {
    "n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18,
}  # fmt: skip
MILLI = 1000


def milli(said: object) -> int | None:
    """Thousandths, rounded up; None for what is no quantity, or below 0."""
    return _scaled(said, MILLI)


def whole(said: object) -> int | None:
    """Whole units (bytes, or the millicores of an extended resource), rounded up."""
    return _scaled(said, 1)


def _scaled(said: object, units: int) -> int | None:
    if isinstance(said, bool) or not isinstance(said, (str, int, float)):
        return None
    text = str(said)
    match = _FORM.match(text) if len(text) <= _CHARACTERS_MAX else None
    if match is None or not (match["whole"] or match["part"]):
        return None
    part, suffix = match["part"] or "", match["suffix"] or ""
    number = int(match["whole"] + part) * units * _BINARY.get(suffix, 1)
    power = -len(part)
    if suffix not in _BINARY:
        power += int(suffix[1:]) if len(suffix) > 1 else _DECIMAL[suffix]
    scale: int = 10 ** abs(power)
    return min(number * scale if power >= 0 else -(-number // scale), LARGEST)
