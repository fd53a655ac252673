"""Weights that double every half life: 2^(t / half life), without a power at run time.

`agents.prediction.histogram` weighs samples with it. Formula: koordinator
`pkg/util/histogram/decaying_histogram.go`. A time is split at its half life into a whole number,
which only moves the exponent, and a fraction, whose binary digits choose from a constant table.
"""

from __future__ import annotations

from decimal import Context, Decimal

FRACTION_BITS = 40
"""Digits of the fraction: the weight is exact to 1e-12."""
_CONTEXT = Context(prec=50)  # three times what a double holds


def _roots() -> tuple[float, ...]:
    roots, root = [], Decimal(2)
    for _ in range(FRACTION_BITS):
        root = _CONTEXT.sqrt(root)
        roots.append(float(root))
    return tuple(roots)


ROOTS = _roots()
"""2^(1/2), 2^(1/4), ...: the factor of each binary digit of a fraction."""


def split(t_ms: int, half_life_ms: int) -> tuple[float, int]:
    """2^(t / half life) as factor and exponent: factor in 1..2, exponent a whole number."""
    whole, rest = divmod(t_ms, half_life_ms)
    digits = (rest << FRACTION_BITS) // half_life_ms
    factor = 1.0
    for place, root in enumerate(ROOTS, 1):
        if digits >> (FRACTION_BITS - place) & 1:
            factor *= root
    return factor, whole


def nearest(t_ms: int, half_life_ms: int) -> int:
    """The time in whole half lives, halves up."""
    return (2 * t_ms + half_life_ms) // (2 * half_life_ms)
