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


def test_what_is_published_is_told_as_its_stage() -> None:
    assert stages.told(Published(Policy())) == stages.means("observe")


PROTECT = Published(parse("rollout: {stage: protect}", "t")).policy
ON_CANARY = "`slackwater policy promote`, or `slackwater policy rollback`"


@pytest.mark.parametrize(
    ("published", "others", "following"),
    [
        (Published(parse(POOLS, "t")), "nodes a in stage pilot", "`slackwater policy put FILE"),
        (Published(Policy(), PROTECT, {"a": "b"}), "the canary in stage protect", ON_CANARY),
        (
            Published(parse(POOLS, "t"), parse(POOLS, "t"), {"a": "b"}),
            "nodes a in stage pilot",
            ON_CANARY,
        ),
    ],
)
def test_who_is_in_another_stage_is_named_once_and_a_canary_comes_first(
    published: Published, others: str, following: str
) -> None:
    begin = stages.means(published.policy.rollout.stage).partition("; next: ")[0]
    assert stages.told(published).startswith(f"{begin}; {others}; next: {following}")
