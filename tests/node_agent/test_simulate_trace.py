"""Traces: what ships, and use inside the 5-minute steps."""

from __future__ import annotations

import numpy as np
import pytest

from node_agent.simulate.trace import SLOTS, TRACES, Trace, load


@pytest.mark.parametrize("name", sorted(TRACES))
def test_what_ships_is_whole(name: str) -> None:
    trace = load(name)
    assert trace.mean.shape == trace.peak.shape
    assert trace.mean.shape[0] == 60
    assert np.all(trace.mean >= 0)
    assert np.all(trace.mean <= trace.peak)
    assert np.all(trace.peak <= 1)
    assert trace.step_s == 300


def follow(trace: Trace, shift: int = 0) -> np.ndarray:
    """[slot of 10 s, entity] over the whole trace."""
    entity = np.arange(trace.mean.shape[0])
    seed = entity * 977
    steps = trace.mean.shape[1]
    return np.array(
        [
            trace.share(entity, np.full(len(entity), shift), seed, at * trace.step_s / SLOTS + 1.0)
            for at in range(steps * SLOTS)
        ]
    )


def test_use_never_passes_the_maximum_and_keeps_the_mean() -> None:
    whole = load("azure")
    trace = Trace(whole.mean[:20, :48], whole.peak[:20, :48], whole.step_s)
    use = follow(trace).reshape(48, SLOTS, 20)
    assert np.all(use >= 0)
    assert np.all(use <= trace.peak.T[:, None, :] + 1e-12)
    # one slot of each step is the maximum itself
    assert np.allclose(use.max(axis=1), trace.peak.T)
    possible = trace.peak.T <= SLOTS * trace.mean.T
    gap = np.abs(use.mean(axis=1) - trace.mean.T)[possible]
    assert np.median(gap) < 0.005
    assert abs(use.mean() - trace.mean.mean()) < 0.01


def test_time_goes_round_and_a_shift_runs_ahead() -> None:
    trace = load("google")
    entity, seed = np.arange(60), np.arange(60)
    steps = trace.mean.shape[1]
    ahead = trace.share(entity, np.full(60, 7), seed, 30.0)
    later = trace.share(entity, np.zeros(60, np.int64), seed, 30.0 + 7 * 300)
    assert np.array_equal(ahead, later)
    around = trace.share(entity, np.full(60, 7 - steps), seed, 30.0)
    assert np.all(around <= trace.peak[:, 7])


def test_followers_of_one_entity_differ_and_are_repeatable() -> None:
    trace = load("azure")
    entity, shift = np.zeros(50, np.int64), np.zeros(50, np.int64)
    once = trace.share(entity, shift, np.arange(50), 3333.0)
    assert len(np.unique(once)) > 25
    assert np.array_equal(once, trace.share(entity, shift, np.arange(50), 3333.0))
