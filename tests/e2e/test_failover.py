"""`make bench NAME=failover` in short: the same disasters, the same proofs, a small fleet."""

from __future__ import annotations

from pathlib import Path

import pytest

from streams.dev_broker import DevBroker
from tests.bench.failover import judge_loss, judge_play, lose_in, play_in
from tests.bench.failover_stage import Plan

ROUNDS, CALM_S = 2, 3.0
POLICY = (
    "rollout: {stage: expand}\ninterference: {history_ms: 20000}\nreservation: {warm_ms: 5000}\n"
)


@pytest.mark.slow
def test_nothing_is_lost_or_done_twice(broker: DevBroker, prefix: str, tmp_path: Path) -> None:
    plan = Plan(60, 10, 300, 6, policy=POLICY, options=("--image-interval", "3"))
    found = play_in(broker.bootstrap, prefix, plan, tmp_path, ROUNDS, CALM_S)
    figures, goals = judge_play(found, plan, ROUNDS)
    assert all(goal.met for goal in goals), (goals, figures)
    assert figures["orphaned_partitions"] >= ROUNDS
    assert found.verdict.images > plan.partitions


@pytest.mark.slow
def test_with_every_state_lost_capacity_holds_at_what_is_lent(
    broker: DevBroker, prefix: str, tmp_path: Path
) -> None:
    figures, goals = judge_loss(lose_in(broker.bootstrap, prefix, tmp_path, nodes=20, partitions=4))
    assert all(goal.met for goal in goals), (goals, figures)
