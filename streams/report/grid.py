"""Rows of many times onto one grid of steps: counters to rates, levels held, curves thinned. Pure.

Arrays are float64 [who, step]; nan: not known. A step is named by its beginning.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
BRIDGED = 3
"""So many steps without a sample are taken to be like their neighbours; a longer gap is a gap."""


@dataclass(frozen=True, slots=True)
class Grid:
    """``count`` steps of ``step_ms`` from ``begin_ms``."""

    begin_ms: int
    step_ms: int
    count: int

    @classmethod
    def over(cls, from_ms: int, to_ms: int, step_ms: int) -> Grid:
        """The grid that holds both ends."""
        begin_ms = from_ms // step_ms * step_ms
        return cls(begin_ms, step_ms, (to_ms - begin_ms) // step_ms + 1)

    def at(self, log_ms: Ints) -> Ints:
        """The step of each time; times outside go to the nearest end."""
        return np.clip((log_ms - self.begin_ms) // self.step_ms, 0, self.count - 1)

    @property
    def times_s(self) -> Floats:
        """Beginnings of the steps, seconds since 1970."""
        steps = np.arange(self.count, dtype=np.int64)
        return (self.begin_ms + steps * self.step_ms) / 1000.0


def empty(rows: int, grid: Grid) -> Floats:
    """Nothing known."""
    return np.full((rows, grid.count), np.nan)


def put(into: Floats, grid: Grid, who: Ints, log_ms: Ints, values: Floats) -> None:
    """The newest value of each step; rows come in order of time."""
    into[who, grid.at(log_ms)] = values


def rates(counter: Floats, clock: Floats) -> Floats:
    """Growth of a counter by that of its clock, both as `put` left them; a reset is not known."""
    out = np.full_like(counter, np.nan)
    steps = np.arange(counter.shape[1])
    for row in range(len(counter)):
        known = np.flatnonzero(~np.isnan(counter[row]) & ~np.isnan(clock[row]))
        if len(known) < 2:
            continue
        grown, passed = np.diff(counter[row, known]), np.diff(clock[row, known])
        with np.errstate(divide="ignore", invalid="ignore"):
            rate = np.where((passed > 0) & (grown >= 0), grown / passed, np.nan)
        after = np.searchsorted(known[1:], steps)
        inside = (after < len(rate)) & (steps > known[0])
        at = np.minimum(after, len(rate) - 1)
        near = np.diff(known)[at] <= BRIDGED + 1
        out[row] = np.where(inside & near, rate[at], np.nan)
    return out


def held(levels: Floats, most_steps: int | None = None) -> Floats:
    """Each level until the next one; at most ``most_steps`` steps on."""
    steps = np.arange(levels.shape[1])
    last = np.where(np.isnan(levels), -1, steps)
    last = np.maximum.accumulate(last, axis=1)
    old = last < 0 if most_steps is None else (last < 0) | (steps - last > most_steps)
    out = np.take_along_axis(levels, np.maximum(last, 0), axis=1)
    out[old] = np.nan
    return out


def thin(curves: Floats, most: int) -> tuple[Ints, Floats]:
    """At most about ``most`` points of each curve, lows and highs kept; and their steps.

    Each bucket of steps gives two points, its lowest and its highest value in the order in which
    they came, so a peak of one step survives any zoom.
    """
    count = curves.shape[1]
    if count <= most:
        return np.arange(count), curves
    width = -(-count * 2 // most)
    buckets = -(-count // width)
    padded = np.full((len(curves), buckets * width), np.nan)
    padded[:, :count] = curves
    cut = padded.reshape(len(curves), buckets, width)
    nothing = np.isnan(cut).all(axis=2)
    low = np.where(np.isnan(cut), np.inf, cut).argmin(axis=2)
    high = np.where(np.isnan(cut), -np.inf, cut).argmax(axis=2)
    pair = np.sort(np.stack([low, high], axis=2), axis=2)
    points = np.take_along_axis(cut, pair, axis=2)
    points[nothing] = np.nan
    starts = np.arange(buckets) * width
    at = np.stack([starts, starts + width // 2], axis=1).reshape(-1)
    return at, points.reshape(len(curves), -1)


def rounded(curve: Floats, digits: int) -> list[float | None]:
    """A curve for JSON."""
    short = np.round(curve, digits)
    return [None if value != value else value for value in short.tolist()]  # noqa: PLR0124
