"""The planted incident under the policy that held before: it is gone, and the figures say so."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from streams.recording import open_recording
from streams.replay.run import Wanted
from streams.replay.what_if.policies import chosen, published_in
from streams.replay.what_if.result import Timeline, WhatIf
from streams.replay.what_if.run import Asked, answer
from tests.sim.broker import START_MS
from tests.sim.incident import BAD_S, GOOD_S, NODES

BUNDLE = Path(__file__).parents[3] / "fixtures" / "recordings" / "incident.slack"


def asked(
    *named: str, partitions: tuple[int, ...] = (), from_ms: int | None = None
) -> list[WhatIf]:  # fmt: skip
    with open_recording(BUNDLE) as recording:
        choices = tuple(chosen(recording, named))
    return answer(Asked(Wanted(path=BUNDLE, from_ms=from_ms), choices, partitions))


@pytest.fixture(scope="module")
def old() -> WhatIf:
    (found,) = asked("version:3")
    return found


def second(log_ms: int) -> int:
    return (log_ms - START_MS) // 1000


def test_the_old_policy_shows_it_gone(old: WhatIf) -> None:
    was, would = old.whole.was, old.whole.would
    assert was.slo_misses > 50
    assert would.slo_misses == 0
    assert was.evicted_pods > 0
    assert would.evicted_pods == 0
    assert would.above_other_ms < was.above_other_ms // 2
    assert would.batch_cpu_core_ms < was.batch_cpu_core_ms, "that is its price"
    assert old.whole.difference["slo_misses"] == -was.slo_misses
    assert old.whole.difference["evictions"] == -was.evicted_pods


def test_it_leaves_what_was_recorded_when_the_bad_policy_came(old: WhatIf) -> None:
    assert old.mark is not None
    assert BAD_S - 1 <= second(old.mark.log_ms) <= BAD_S + 2
    assert len(old.marks) == NODES
    assert all(BAD_S - 1 <= second(mark.log_ms) <= GOOD_S for mark in old.marks)
    assert old.recorded.versions == (3, 4)
    assert old.other.digests == (old.recorded.digests[0],)


def test_before_the_mark_all_is_as_it_was(old: WhatIf) -> None:
    (whole,) = [each for each in old.timelines if each.kind == "whole"]
    steps = (BAD_S * 1000 - (whole.start_ms - START_MS)) // whole.step_ms
    assert steps > 10
    for name, values in whole.was.items():
        assert values[:steps] == whole.would[name][:steps], name
    assert whole.was["best_effort_milli"][steps + 2] != whole.would["best_effort_milli"][steps + 2]


def test_parts_add_up_to_the_whole(old: WhatIf) -> None:
    for kind in ("partition", "pool", "node"):
        parts = [group for group in old.groups if group.kind == kind]
        for name in ("commands", "evictions", "nodes", "ill_ms", "node_ms"):
            assert sum(p.difference[name] for p in parts) == old.whole.difference[name], name
        assert sum(p.was.evicted_pods for p in parts) == old.whole.was.evicted_pods


def test_first_differences_are_told_with_both_sides(old: WhatIf) -> None:
    deciders = [example.decider for example in old.examples]
    assert deciders == ["capacity", "suppress", "evict_memory"]
    assert all(example.was and example.would for example in old.examples)
    evicted = old.examples[-1]
    assert "was told to leave" in evicted.was
    assert evicted.would == "nobody has to leave"


def peak(line: Timeline, side: str, name: str) -> int:
    columns = line.was if side == "was" else line.would
    return max(value or 0 for value in columns[name])


def with_changes(tmp_path: Path, version: int, **changes: dict[str, object]) -> str:
    """A file with what a recorded version says, some sections changed."""
    with open_recording(BUNDLE) as recording:
        (text,) = [each.text for each in published_in(recording) if each.version == version]
    document = yaml.safe_load(text)
    for section, said in changes.items():
        document.setdefault(section, {}).update(said)
    path = tmp_path / "other.yaml"
    path.write_text(yaml.safe_dump(document))
    return str(path)


def test_pods_that_would_not_have_been_evicted_live_on(tmp_path: Path) -> None:
    kept = with_changes(tmp_path, 4, evict_memory={"enabled": False})
    evicting, keeping = asked("version:4", kept, partitions=(0,))
    assert evicting.whole.would.evicted_pods > 0
    assert keeping.whole.would.evicted_pods == 0
    assert (
        keeping.whole.would.best_effort_core_ms + keeping.whole.would.withheld_core_ms
        > evicting.whole.would.best_effort_core_ms + evicting.whole.would.withheld_core_ms
    ), "they go on wanting CPU"


def test_pods_that_would_have_been_evicted_are_gone(tmp_path: Path) -> None:
    strict = with_changes(tmp_path, 4, evict_memory={"threshold_percent": 45, "lower_percent": 40})
    lax, found = asked("version:4", strict, partitions=(0,))
    assert found.whole.would.evicted_pods > lax.whole.would.evicted_pods
    assert found.whole.would.best_effort_core_ms < lax.whole.would.best_effort_core_ms


def test_from_a_time_on_begins_at_an_image_and_counts_what_follows() -> None:
    (found,) = asked("version:3", partitions=(0,), from_ms=START_MS + 380_000)
    nodes = found.whole.was.nodes
    assert second(found.from_ms) == 380
    assert 35_000 * nodes < found.whole.was.node_ms <= 41_000 * nodes
    assert found.mark is None, "version 5 says what version 3 said"
    assert found.whole.was == found.whole.would
