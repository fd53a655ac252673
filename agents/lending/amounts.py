"""Shares of amounts and exact sums by owner, for the other modules of this package."""

from __future__ import annotations

import numpy as np

from agents.table import Array, Ints

LIMB_BITS = 31
"""A sum is taken in two limbs: each stays exact in a float64 for 2^22 items."""
LARGEST_SUM = 1 << 62
"""Where sums stop, so that a few of them can be added without leaving 64 bits."""
PERMILLE = 1000
Percent = int | Array
"""One for all, or one for each row or column, as numpy broadcasts."""


def share_of(amount: Array, percent: Percent) -> Ints:
    """trunc(amount x (percent / 100)) in the peer's order of floating-point operations."""
    result: Ints = (amount.astype(np.float64) * (np.asarray(percent) / 100)).astype(np.int64)
    return result


def permille_of(amount: Array, permille: Percent) -> Ints:
    """floor(amount x permille / 1000), exact for amounts below 2^63."""
    whole, rest = amount // PERMILLE, amount % PERMILLE
    result: Ints = whole * np.asarray(permille) + rest * np.asarray(permille) // PERMILLE
    return result


def quotient(amount: Array, parts: Array) -> Ints:
    """floor(amount / parts) of amounts from 0 below 2^53: exact, and much cheaper than on integers.

    A quotient just below a whole number k differs from it by at least 1 / parts, which is more than
    half a step of a float64 near k while k x parts stays below 2^53; so it is never rounded up.
    """
    result: Ints = (amount / parts).astype(np.int64)
    return result


def up(amount: Array, parts: Array) -> Ints:
    """The quotient, rounded up."""
    result: Ints = -(-amount // parts)
    return result


def sums(values: Array, owner: Ints, owners: int) -> Ints:
    """[owners, k] sums of [p, k] values (0 and more) by owner; stops at `LARGEST_SUM`."""
    result = np.zeros((owners, values.shape[1]), dtype=np.int64)
    for column in range(values.shape[1]):
        high, low = values[:, column] >> LIMB_BITS, values[:, column] & ((1 << LIMB_BITS) - 1)
        tops = np.bincount(owner, weights=high, minlength=owners).astype(np.int64)
        rest = np.bincount(owner, weights=low, minlength=owners).astype(np.int64)
        tops = np.minimum(tops, LARGEST_SUM >> LIMB_BITS)
        result[:, column] = np.minimum((tops << LIMB_BITS) + rest, LARGEST_SUM)
    return result
