"""The dry-run sink: what it writes, that it remembers, and that it is safe to run twice."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from scheduler_bridge.kube.node_status import body
from scheduler_bridge.reconcile import Amount, Desired, Patch, Rules, reconcile
from scheduler_bridge.settings import CPU_NAME, MEMORY_NAME, MID_CPU_NAME, MID_MEMORY_NAME
from scheduler_bridge.sinks.dry_run import DryRun, RecordInUse

NAMES = (CPU_NAME, MEMORY_NAME, MID_CPU_NAME, MID_MEMORY_NAME)


def sink(path: Path, said: list[str] | None = None, max_bytes: int = 1 << 20) -> DryRun:
    echo = (lambda _line: None) if said is None else said.append
    return DryRun(path, echo, CPU_NAME, MEMORY_NAME, max_bytes=max_bytes)


def patch(node: str, cpu: int, offset: int = 1) -> Patch:
    amount = Amount(cpu, 2 << 30)
    return Patch(
        node, amount, True, "rise", "usage", (1, offset), 7, "abc", None, 1000, offered=amount
    )


async def test_a_line_is_the_merge_patch_of_our_keys_only(tmp_path: Path) -> None:
    said: list[str] = []
    one = sink(tmp_path / "record", said)
    await one.tell(patch("n1", 1500))
    one.close()
    line = orjson.loads((tmp_path / "record").read_bytes())
    assert line["dry_run"] is True
    assert line["patch"]["status"]["allocatable"] == {
        "kubernetes.io/batch-cpu": "1500",
        "kubernetes.io/batch-memory": str(2 << 30),
        "kubernetes.io/mid-cpu": "0",
        "kubernetes.io/mid-memory": "0",
    }
    assert line["patch"]["status"]["capacity"] == line["patch"]["status"]["allocatable"]
    assert line["patch"] == body(patch("n1", 1500), NAMES), "what the sink of a cluster would send"
    assert said == [
        (
            "would patch n1: kubernetes.io/batch-cpu none -> 1500m, "
            "kubernetes.io/batch-memory 2048 MiB (rise: usage)"
        )
    ]


async def test_lines_that_are_none_are_counted_aloud(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    record = tmp_path / "record"
    one = sink(record)
    await one.tell(patch("n1", 1500))
    one.close()
    record.write_bytes(b"garbage\n[]\n" + record.read_bytes())
    again = sink(record)
    again.close()
    assert again.observed["n1"].amount.cpu_milli == 1500
    assert caplog.messages == [f"{record}: 2 lines are none of a bridge and passed over"]


async def test_mid_is_shown_and_remembered(tmp_path: Path) -> None:
    said: list[str] = []
    one = sink(tmp_path / "record", said)
    amount = Amount(1500, 2 << 30, 700, 1 << 30)
    both = replace(patch("n1", 1500), amount=amount, offered=amount)
    await one.tell(both)
    one.close()
    line = orjson.loads((tmp_path / "record").read_bytes())
    assert line["patch"]["status"]["allocatable"]["kubernetes.io/mid-cpu"] == "700"
    assert "kubernetes.io/mid-cpu 700m, kubernetes.io/mid-memory 1024 MiB (rise" in said[0]
    again = sink(tmp_path / "record")
    assert again.observed["n1"].amount == both.amount
    again.close()


async def test_a_record_of_before_mid_is_still_read(tmp_path: Path) -> None:
    one = sink(tmp_path / "record")
    await one.tell(patch("n1", 1500))
    one.close()
    line = orjson.loads((tmp_path / "record").read_bytes())
    old = {name: value for name, value in line.items() if not name.startswith("mid_")}
    (tmp_path / "record").write_bytes(orjson.dumps(old) + b"\n")
    again = sink(tmp_path / "record")
    assert again.observed["n1"].amount == Amount(1500, 2 << 30)
    again.close()


async def test_a_restart_knows_what_was_published(tmp_path: Path) -> None:
    first = sink(tmp_path / "record")
    await first.tell(patch("n1", 1500))
    await first.tell(patch("n1", 2500, offset=2))
    before = dict(first.observed)
    first.close()
    second = sink(tmp_path / "record")
    assert second.observed == before
    want = Desired(Amount(2500, 2 << 30), True, "usage", (1, 2), 1000)
    assert reconcile({"n1": want}, second.observed, {}, 2000, Rules()) == []
    second.close()


async def test_a_torn_last_line_is_cut_off_and_foreign_lines_are_passed_over(
    tmp_path: Path,
) -> None:
    path = tmp_path / "record"
    first = sink(path)
    await first.tell(patch("n1", 1500))
    first.close()
    whole = path.read_bytes()
    path.write_bytes(b"not json\n" + whole + whole[:40])
    second = sink(path)
    assert second.observed["n1"].amount.cpu_milli == 1500
    await second.tell(patch("n2", 1))
    second.close()
    assert [orjson.loads(x)["node"] for x in path.read_bytes().splitlines()[1:]] == ["n1", "n2"]


async def test_the_record_is_bounded_and_keeps_the_newest_line_of_each_node(
    tmp_path: Path,
) -> None:
    path = tmp_path / "record"
    one = sink(path, max_bytes=4000)
    for offset in range(40):
        await one.tell(patch(f"n{offset % 3}", 100 + offset, offset))
        assert path.stat().st_size <= 4000
    one.close()
    assert (tmp_path / "record.1").exists()
    again = sink(path)
    assert {n: o.amount.cpu_milli for n, o in again.observed.items()} == {
        "n0": 139,
        "n1": 137,
        "n2": 138,
    }
    again.close()


async def test_a_second_bridge_on_the_same_record_is_refused(tmp_path: Path) -> None:
    one = sink(tmp_path / "record")
    with pytest.raises(RecordInUse, match="another bridge"):
        sink(tmp_path / "record")
    one.close()
    sink(tmp_path / "record").close()


async def test_what_could_not_be_written_is_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = sink(tmp_path / "record")
    await one.tell(patch("n1", 1500))
    size = (tmp_path / "record").stat().st_size
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, line: write(fd, line[:10]))
    with pytest.raises(OSError, match="disk full"):
        await one.tell(patch("n1", 9000, offset=2))
    monkeypatch.undo()
    assert one.observed["n1"].amount.cpu_milli == 1500
    assert (tmp_path / "record").stat().st_size == size
    one.close()
