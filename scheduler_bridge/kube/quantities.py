"""Kubernetes quantities ("1500m", "2Gi", "1e3") as integers, and back. Pure and exact.

What lies between two integers is rounded up, as the API server's own `Value` and `MilliValue` do.
Used by whoever reads what a node has or a pod asks for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction

from agents.inventory import LARGEST

MOST = 2**63 - 1
LARGEST_EXPONENT = 30
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_FORM = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]{1,3}))?"
)


class OutOfRange(ValueError):
    """A number, and larger than any that we count with."""


def at_most(read: Callable[[str], int], quantity: str) -> int:
    """What `whole` or `milli` make of a pod's own figure, from 0 to `LARGEST`; raises ValueError.

    A pod may ask for any number, and one that asks for more than any machine has must count, not
    be passed over.
    """
    try:
        return min(max(0, read(quantity)), LARGEST)
    except OutOfRange:
        return 0 if quantity.startswith("-") else LARGEST


def whole(quantity: str) -> int:
    """In units: bytes of memory, and the integer of an extended resource. Raises ValueError."""
    if len(quantity) < 19 and quantity.isascii() and quantity.isdigit():
        return int(quantity)  # most are: a mirror of nodes reads eight of each
    return _ceiling(_parse(quantity), quantity)


def milli(quantity: str) -> int:
    """In thousandths: millicores of CPU. Raises ValueError."""
    return _ceiling(_parse(quantity) * 1000, quantity)


def from_whole(units: int) -> str:
    """A quantity of so many units."""
    return str(units)


def from_milli(thousandths: int) -> str:
    """A quantity of so many thousandths, in the API server's own spelling below 1000 units."""
    units, rest = divmod(thousandths, 1000)
    return f"{thousandths}m" if rest else str(units)


def _parse(quantity: str) -> Fraction:
    found = _FORM.fullmatch(quantity)
    if found is None or len(quantity) > 64:
        raise ValueError(f"{quantity[:64]!r} is no quantity; such as 1500m, 2Gi or 1e3 is")
    number = Fraction(found["number"])
    suffix = found["suffix"] or ""
    if suffix in _BINARY:
        return number * (1 << _BINARY[suffix])
    power = int(found["exponent"]) if found["exponent"] else _DECIMAL[suffix]
    if abs(power) > LARGEST_EXPONENT:
        kind = OutOfRange if power > 0 and number else ValueError
        raise kind(f"{quantity!r}: exponents go from -30 to {LARGEST_EXPONENT}")
    scale = int(10 ** abs(power))
    return number * scale if power >= 0 else number / scale


def _ceiling(amount: Fraction, quantity: str) -> int:
    units = -(-amount.numerator // amount.denominator)
    if abs(units) > MOST:
        raise OutOfRange(f"{quantity!r} is out of range; at most {MOST}")
    return units
