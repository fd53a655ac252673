"""Use of online pods from a real trace of 5-minute steps, also inside the steps. Pure.

A step has a mean and a maximum. Inside it the use follows the line between the means of
neighbouring steps with a seeded noise of at most `NOISE_PERMILLE`; one of its `SLOTS` slots, drawn
by the seed, is at the step's maximum, and the others give way so that the step keeps its mean
(unless its maximum alone exceeds it). Nothing ever passes the maximum. `node_agent.simulate.model`
asks for whole [node, pod] arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

TRACES = {"azure": "azure2017.npz", "google": "google2011.npz"}
SLOTS = 30
NOISE_PERMILLE = 100
_FULL = 10_000.0  # 0.01 % in a whole


@dataclass(frozen=True, slots=True)
class Trace:
    """``mean`` and ``peak`` [entity, step] are shares 0 to 1 of what the entity has."""

    mean: FloatArray
    peak: FloatArray
    step_s: int

    @property
    def day_steps(self) -> int:
        """Steps in a day, or in the whole trace if that is shorter."""
        return min(86_400 // self.step_s, int(self.mean.shape[1]))

    def share(self, entity: IntArray, shift: IntArray, seed: IntArray, at_s: float) -> FloatArray:
        """Use at ``at_s`` seconds of trace time as a share 0 to 1; all arrays of one shape.

        ``shift``: steps by which a follower runs ahead; ``seed``: makes followers of one entity
        differ. The trace is a ring: after its end it begins anew.
        """
        steps = self.mean.shape[1]
        whole, rest_s = divmod(at_s, self.step_s)
        inside = rest_s / self.step_s
        absolute = shift + int(whole)
        now = absolute % steps
        mean, peak = self.mean[entity, now], self.peak[entity, now]
        # A step's mean stands at its middle: before it the line comes from the step before.
        side = -1 if inside < 0.5 else 1
        other = self.mean[entity, (now + side) % steps]
        line = mean + (other - mean) * abs(inside - 0.5)
        lowered = (SLOTS * line - peak) / (SLOTS - 1)
        slot = int(rest_s * SLOTS / self.step_s)
        drawn = noise(seed, absolute * SLOTS + slot) * (NOISE_PERMILLE / 1000.0)
        rest = np.clip(lowered * (1.0 + drawn), 0.0, peak)
        at_peak = _mix(seed, absolute) % np.uint64(SLOTS) == np.uint64(slot)
        used: FloatArray = np.where(at_peak, peak, rest)
        return used


def load(name: str) -> Trace:
    """One of `TRACES`, from the package. Raises KeyError for another name."""
    data = files("node_agent.simulate").joinpath("data", TRACES[name])
    with data.open("rb") as raw, np.load(raw, allow_pickle=False) as members:
        return Trace(
            mean=members["cpu_mean_pct_x100"] / _FULL,
            peak=members["cpu_max_pct_x100"] / _FULL,
            step_s=int(members["step_s"]),
        )


def _mix(seed: IntArray, index: IntArray) -> NDArray[np.uint64]:
    """64 well mixed bits of two numbers (the finaliser of splitmix64)."""
    bits = seed.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + index.astype(np.uint64)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def noise(seed: IntArray, index: IntArray) -> FloatArray:
    """Uniform in [-1, 1), the same for the same numbers."""
    return (_mix(seed, index) >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0
