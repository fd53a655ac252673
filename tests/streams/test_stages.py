"""The stage of the rollout in words: for the worker's log, and wherever somebody asks."""

from __future__ import annotations

from typing import get_args

import pytest

from schemas.policy import STAGES, Policy, Published, Stage, parse
from streams import stages

POOLS = """
rollout: {stage: protect}
nodes:
  - {name: a, match: {pool: a}, rollout: {stage: pilot}}
  - {name: b, match: {pool: b}, rollout: {cpu_cap_percent: 5}}
  - {name: c, match: {pool: c}, rollout: {stage: protect}}
"""


def test_every_stage_has_words_and_all_but_the_last_a_next_command() -> None:
    assert set(get_args(Stage)) == STAGES.keys()
    for stage in (*STAGES, stages.CONTROL):
        assert stages.means(stage).startswith(f"stage {stage}: ")
        going_on = "`slackwater policy put FILE --canary" in stages.means(stage)
        assert going_on is (stage in ("observe", "protect", "pilot"))


@pytest.mark.parametrize(
    ("published", "said"),
    [
        (Published(Policy()), stages.means("observe")),
        (Published(parse(POOLS, "t")), f"{stages.means('protect')}; nodes a in stage pilot"),
        (
            Published(Policy(), parse("rollout: {stage: protect}", "t"), {"pool": "a"}),
            f"{stages.means('observe')}; the canary in stage protect",
        ),
        (
            Published(parse(POOLS, "t"), parse(POOLS, "t"), {"pool": "a"}),
            f"{stages.means('protect')}; nodes a in stage pilot",
        ),
    ],
)
def test_who_is_in_another_stage_is_named_once(published: Published, said: str) -> None:
    assert stages.told(published) == said
