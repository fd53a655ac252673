"""`slackwater replay`: identical, or the first difference with both sides; by exit code too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
from typer.testing import CliRunner

from agents.log import LAW_VERSION
from streams.recording import Recording
from streams.recording.segment import Record
from streams.replay.cli import app
from tests.streams.replay.changing import Change, behind, changed, valued

RUN = CliRunner()


def replay(path: Path, *more: str) -> tuple[int, dict[str, Any]]:
    done = RUN.invoke(app, [str(path), "--json", *more])
    assert done.stdout, done.output
    document: dict[str, Any] = orjson.loads(done.stdout)
    return done.exit_code, document


def one(path: Path, recording: Recording, place: tuple[str, int], change: Change) -> Any:
    """The document of a replay in which one place was changed."""
    code, said = replay(changed(recording, path, {place: change}))
    assert (code, said["verdict"]) == (1, "differs")
    assert said["digest_then"] != said["digest_now"] or said["said_otherwise"]
    return said


def a_decision(records: list[Record]) -> Record:
    """One in the middle, of a sample or a tick."""
    return records[len(records) // 2]


def test_what_was_recorded_is_decided_again(path: Path) -> None:
    code, said = replay(path)
    assert (code, said["verdict"]) == (0, "identical")
    assert said["equal"] == said["then"] > 500
    assert said["digest_then"] == said["digest_now"]
    assert [each["began_at"] for each in said["partitions"]] == [-1, -1]
    assert said["beyond"] == said["now"] - said["then"]
    assert said["first_difference"] is None


def test_in_processes_the_same(path: Path) -> None:
    _, alone = replay(path, "--jobs", "1")
    _, several = replay(path, "--jobs", "2")
    for each in (*alone["partitions"], *several["partitions"]):
        del each["seconds"]
    assert several["partitions"] == alone["partitions"]
    assert several["digest_now"] == alone["digest_now"]


def test_a_span_begins_at_an_image(path: Path, recording: Recording) -> None:
    times = [record.timestamp for record in recording.records("samples", 0)]
    middle, late = times[len(times) // 2], times[-20]
    code, said = replay(path, "--from", str(middle), "--to", str(late), "--partition", "0")
    assert (code, said["verdict"]) == (0, "identical")
    (only,) = said["partitions"]
    assert 0 < only["began_at"] < len(times) // 2
    assert only["at"] == max(i for i, ms in enumerate(times) if ms <= late)
    assert 50 < said["equal"] < 200


def test_a_time_after_the_end_holds_nothing_and_times_count_back_from_the_end(path: Path) -> None:
    code, said = replay(path, "--from", "2099-01-01")
    assert (code, said["verdict"]) == (2, "cannot")
    assert "no samples in that time" in said["partitions"][0]["error"]
    code, said = replay(path, "--from", "-10s", "--to", "now")
    assert (code, said["verdict"]) == (0, "identical")


def test_other_bytes(recording: Recording, tmp_path: Path) -> None:
    def other(records: list[Record]) -> list[Record]:
        kept = next(i for i, r in enumerate(records) if r.key is not None and i > 20)
        value = orjson.loads(records[kept].value or b"")
        value["computed_cpu_milli"] += 1
        records[kept] = valued(records[kept], orjson.dumps(value))
        return records

    said = one(tmp_path / "b", recording, ("capacity", 0), other)
    assert (said["differing"], said["only_then"], said["only_now"]) == (1, 0, 0)
    first = said["first_difference"]
    assert (first["kind"], first["topic"]) == ("differs", "capacity")
    then, now = first["fields"]["computed_cpu_milli"]
    assert then == now + 1
    assert list(first["fields"]) == ["computed_cpu_milli"]
    assert first["then"]["computed_cpu_milli"] == then
    assert "a tick at" in first["cause"]
    assert "Both: " in first["words"]


def test_one_that_is_not_recorded(recording: Recording, tmp_path: Path) -> None:
    def without(records: list[Record]) -> list[Record]:
        gone = a_decision(records)
        return [record for record in records if record is not gone]

    said = one(tmp_path / "b", recording, ("decisions", 0), without)
    assert (said["differing"], said["only_then"], said["only_now"]) == (0, 0, 1)
    assert said["first_difference"]["then"] is None
    assert "said now and was not then" in said["first_difference"]["words"]


def test_one_that_the_law_does_not_say(recording: Recording, tmp_path: Path) -> None:
    def forged(records: list[Record]) -> list[Record]:
        value = orjson.loads(a_decision(records).value or b"")
        value["decider"] = "isolate"
        return [*records, behind(valued(records[-1], orjson.dumps(value)), records[-1].offset + 1)]

    said = one(tmp_path / "b", recording, ("decisions", 1), forged)
    assert (said["differing"], said["only_then"], said["only_now"]) == (0, 1, 0)
    assert said["first_difference"]["now"] is None


def test_said_again_by_the_next_worker(recording: Recording, tmp_path: Path) -> None:
    def again(records: list[Record]) -> list[Record]:
        end = records[-1].offset + 1
        return records + [behind(r, end + i) for i, r in enumerate(records[-30:])]

    path = changed(recording, tmp_path / "b", {("decisions", 0): again})
    code, said = replay(path)
    assert (code, said["repeated"]) == (0, 30)

    def otherwise(records: list[Record]) -> list[Record]:
        last = again(records)[-1]
        value = orjson.loads(last.value or b"")
        value["outcome"] = ["raise"] * len(value["outcome"])
        return [*again(records)[:-1], valued(last, orjson.dumps(value))]

    said = one(tmp_path / "c", recording, ("decisions", 0), otherwise)
    assert (said["repeated"], said["said_otherwise"], said["differing"]) == (29, 1, 0)
    assert said["first_difference"]["kind"] == "said_otherwise"


def command_left_out(recording: Recording) -> tuple[int, Change]:
    """When a command expires that is not on the topic any more, and how it gets lost."""
    records = list(recording.records("commands", 0))
    gone = next(r for r in records if r.key != b"~lease")
    expires: int = orjson.loads(gone.value or b"")["expires_log_ms"]
    return expires, lambda old: [r for r in old if r.offset != gone.offset]


def test_a_command_is_withheld_only_when_it_can_have_expired(
    recording: Recording, tmp_path: Path
) -> None:
    expires, lost = command_left_out(recording)
    said = one(tmp_path / "b", recording, ("commands", 0), lost)
    assert (said["withheld"], said["only_now"]) == (0, 1)

    def late(records: list[Record]) -> list[Record]:
        return [
            Record(
                r.topic, r.partition, r.offset, max(r.timestamp, expires), r.key, r.value, r.headers
            )
            for r in lost(records)
        ]

    code, said = replay(changed(recording, tmp_path / "c", {("commands", 0): late}))
    assert (code, said["withheld"], said["only_now"]) == (0, 1, 0)


def test_another_law_is_a_what_if(recording: Recording, tmp_path: Path) -> None:
    older = msgspec.structs.replace(recording.manifest, law_versions=(LAW_VERSION - 1,))
    path = changed(recording, tmp_path / "b", {}, older)
    code, said = replay(path)
    assert (code, said["verdict"]) == (3, "other_law")
    assert said["now"] > 500
    assert "OTHER LAW" in RUN.invoke(app, [str(path)]).stdout


def test_what_cannot_be_replayed_says_why(recording: Recording, tmp_path: Path) -> None:
    blind: dict[tuple[str, int], Change] = {
        ("samples", 0): lambda records: records[10:],
        ("images", 0): lambda _: [],
    }
    code, said = replay(changed(recording, tmp_path / "b", blind))
    assert (code, said["verdict"]) == (2, "cannot")
    assert "has no whole image" in said["partitions"][0]["error"]
    assert said["partitions"][1]["equal"] > 100, "the other partition is not harmed"
    for arguments, why in (
        ([str(tmp_path / "none")], "does not exist"),
        ([], "name a bundle or a folder"),
        ([str(tmp_path / "b"), "--partition", "7"], "partition 7 is not there"),
        ([str(tmp_path / "b"), "--speed", "fast"], "write max, or times real time"),
        ([str(tmp_path / "b"), "--from", "yesterday"], "write 2026-"),
    ):
        done = RUN.invoke(app, arguments)
        assert (done.exit_code, done.stdout) == (2, "")
        assert why in done.stderr


def test_for_people(path: Path, recording: Recording, tmp_path: Path) -> None:
    assert RUN.invoke(app, [str(path)]).stdout.startswith("IDENTICAL: ")
    _, lost = command_left_out(recording)
    text = RUN.invoke(
        app, [str(changed(recording, tmp_path / "b", {("commands", 0): lost}))]
    ).stdout
    assert text.startswith("DIFFERS: ")
    assert "First difference: commands" in text
    assert "then not said" in text


@pytest.mark.parametrize("speed", ["20x"])
def test_at_a_speed(path: Path, speed: str) -> None:
    code, said = replay(path, "--speed", speed, "--to", "1700000020000", "--partition", "0")
    assert code == 0
    assert said["times_real_time"] <= 20
