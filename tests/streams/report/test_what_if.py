"""The planted incident under the policy before it: what if says that it is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from streams.replay.what_if.result import WhatIf
from streams.report.beside import run, told
from tests.sim.broker import START_MS
from tests.sim.incident import BAD_S


@pytest.fixture(scope="module")
def answer(bundle: Path) -> WhatIf:
    return run(bundle, "version:3", jobs=1)


def test_services_keep_their_objective_and_nobody_goes(answer: WhatIf) -> None:
    was, would = answer.whole.was, answer.whole.would
    assert was.slo_misses > 100
    assert would.slo_misses == 0
    assert was.evicted_pods > 0
    assert would.evicted_pods == 0


def test_it_leaves_the_facts_at_the_policy_that_was_published(answer: WhatIf) -> None:
    assert answer.mark is not None
    assert BAD_S <= (answer.mark.log_ms - START_MS) / 1000 < BAD_S + 2


def test_the_finding_says_so_with_its_mark(answer: WhatIf) -> None:
    _, (finding,) = told(answer)
    assert finding.kind == "what_if"
    assert "With policy version 3 instead: 0 reports of services" in finding.text
    assert "a model's word" in finding.text
