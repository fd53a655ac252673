"""The broker goes away and comes back: the node keeps to the law, and the loop becomes whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from streams.demo import real
from tests.e2e import demo
from tests.support import unavailable

OUTAGE_S = 20


@pytest.mark.slow
def test_a_node_keeps_to_the_law_without_a_broker_and_the_loop_is_whole_again(
    tmp_path: Path,
) -> None:
    if reason := real.why_not():
        unavailable(reason)
    options = ("--for", "60s", "--nodes", "10", "--broker-outage", f"{OUTAGE_S}s")
    summary, run = demo.judged(tmp_path, *options)
    outage = summary["outage"]
    assert outage["seconds_measured"] >= OUTAGE_S - 2
    assert outage["beyond_law"] == []
    assert outage["whole_again_s"] <= outage["whole_within_s"] == 15.0
    assert "demo outage" in run.told
    assert summary["dead_letters"] == {}
