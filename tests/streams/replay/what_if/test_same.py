"""Where the other policy says what was said, the answer is nothing, to the last figure."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from streams.recording import open_recording
from streams.recording.segment import Record
from streams.replay.run import Wanted
from streams.replay.what_if.policies import Choice, chosen
from streams.replay.what_if.result import WhatIf
from streams.replay.what_if.run import Asked, answer
from tests.streams.recording.made import bundle_of, log_of
from tests.streams.replay.changing import changed


def asked(path: Path, *named: str) -> list[WhatIf]:
    with open_recording(path) as recording:
        choices: tuple[Choice, ...] = tuple(chosen(recording, named))
    return answer(Asked(Wanted(path=path), choices))


@pytest.mark.parametrize("seed", [1, 2, 3, 20_261_130])
def test_the_same_policy_differs_in_nothing_and_has_no_mark(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "made.slack"
    bundle_of(*log_of(seed, seconds=25), path)
    (found,) = asked(path, "version:1")
    assert found.mark is None
    assert found.marks == ()
    assert found.examples == ()
    assert found.whole.was.command_count > 0
    assert found.whole.was.node_ms > 0
    for group in found.groups:
        assert group.was == group.would
        assert set(group.difference.values()) == {0}
    for each in found.timelines:
        assert each.was == each.would


def test_the_same_question_has_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "made.slack"
    bundle_of(*log_of(seconds=25), path)
    other = tmp_path / "other.yaml"
    other.write_text("name: default\nrollout: {stage: expand}\nsuppress: {threshold_percent: 40}\n")
    (one,), (again,) = asked(path, str(other)), asked(path, str(other))
    assert one.mark is not None
    assert one.whole.was != one.whole.would
    assert msgspec.json.encode(one) == msgspec.json.encode(again)
    assert msgspec.json.decode(msgspec.json.encode(one), type=WhatIf) == one


def test_a_hole_is_where_a_partition_ends_on_both_sides(tmp_path: Path) -> None:
    whole, holed = tmp_path / "whole.slack", tmp_path / "holed.slack"
    bundle_of(*log_of(seconds=20), whole)
    with open_recording(whole) as recording:
        partition = recording.partitions()[0]
        there = list(recording.records("samples", partition))
        middle = len(there) // 2

        def without(records: list[Record]) -> list[Record]:
            return [*records[:middle], *records[middle + 1 :]]

        changed(recording, holed, {("samples", partition): without})
    (before,), (found,) = asked(whole, "version:1"), asked(holed, "version:1")
    assert before.problems == ()
    assert len(found.problems) == 1
    assert f"partition {partition}" in found.problems[0]
    assert 0 < found.whole.was.node_ms < before.whole.was.node_ms
    assert found.mark is None
    assert found.whole.was == found.whole.would
