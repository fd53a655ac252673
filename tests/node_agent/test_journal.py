"""The journal: what is kept, what a torn line costs, what a rotation and a reboot leave."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson
import pytest

from node_agent.journal import NAME, OLD_NAME, Journal, recall

KERNEL = "k" * 32
QUOTA = {"quota_us": -1, "period_us": 100_000}


def command(offset: int, **more: Any) -> dict[str, Any]:
    return {
        "kind": "command",
        "id": f"c{offset}",
        "source": "command",
        "decider": "suppress",
        "incarnation": 1,
        "offset": offset,
        "ordered": True,
        "asked_milli": 700,
        "in_force_milli": 700,
        "granted_milli": 700,
        "pods": [],
        "outcome": "applied",
        "reason": "",
        "dry_run": False,
        "boot": "b",
        "mono_us": 1,
        **more,
    }


def test_what_was_written_is_recalled(tmp_path: Path) -> None:
    journal = Journal(tmp_path, KERNEL)
    journal.boot("b1", 1)
    journal.keep_originals("be", [("cpu_quota", ".", QUOTA)])
    journal.append(command(7))
    journal.close()
    state = recall(tmp_path)
    assert state.originals == {"be": {"cpu_quota": {".": QUOTA}}}
    assert (state.boot, state.newest, state.granted_milli) == ("b1", {"suppress": [1, 7]}, 700)
    assert state.commands["c7"]["outcome"] == "applied"


def test_torn_last_line_is_cut_off_and_the_next_one_is_whole(tmp_path: Path) -> None:
    journal = Journal(tmp_path, KERNEL)
    journal.boot("b1", 1)
    journal.close()
    with (tmp_path / NAME).open("ab") as file:
        file.write(b'{"kind":"original","root":"be","kno')
    journal = Journal(tmp_path, KERNEL)
    journal.keep_originals("be", [("cpu_quota", ".", QUOTA)])
    journal.close()
    lines = (tmp_path / NAME).read_bytes().splitlines()
    assert [orjson.loads(line)["kind"] for line in lines] == ["boot", "original"]


def test_damaged_line_in_the_middle_costs_only_itself(tmp_path: Path) -> None:
    journal = Journal(tmp_path, KERNEL)
    journal.boot("b1", 1)
    journal.append(command(1))
    journal.append(command(2))
    journal.close()
    path = tmp_path / NAME
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"\0\0\0\n" + lines[2])
    state = recall(tmp_path)
    assert (list(state.commands), state.broken_lines) == (["c2"], 1)


def test_reboot_makes_originals_void_but_not_the_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path, KERNEL)
    journal.boot("b1", 1)
    journal.keep_originals("be", [("cpu_quota", ".", QUOTA)])
    journal.append(command(7))
    journal.close()
    journal = Journal(tmp_path, "another" + KERNEL)
    assert journal.state.originals == {}
    assert journal.state.newest == {"suppress": [1, 7]}
    journal.close()


def test_size_is_bounded_and_the_standing_state_survives_rotation(tmp_path: Path) -> None:
    journal = Journal(tmp_path, KERNEL, fsync="never", max_bytes=200_000)
    journal.boot("b1", 1)
    journal.keep_originals("be", [("cpu_quota", ".", QUOTA)])
    for offset in range(3000):
        journal.append(command(offset))
    before = journal.state
    journal.close()
    sizes = [(tmp_path / name).stat().st_size for name in (NAME, OLD_NAME)]
    assert all(0 < size <= 200_000 for size in sizes)
    after = recall(tmp_path)
    assert after.originals == before.originals
    assert after.newest == {"suppress": [1, 2999]}
    assert "c2999" in after.commands
    assert after.broken_lines == 0


def test_superseded_boots_are_known(tmp_path: Path) -> None:
    for boot in ("b1", "b2", "b3"):
        journal = Journal(tmp_path, KERNEL)
        journal.boot(boot, 1)
        journal.close()
    assert recall(tmp_path).superseded == ["b1", "b2"]


def test_short_write_leaves_no_half_line(tmp_path: Path) -> None:
    def half(descriptor: int, raw: bytes) -> int:
        return os.write(descriptor, raw[: len(raw) // 2])

    Journal(tmp_path, KERNEL).close()
    journal = Journal(tmp_path, KERNEL, write=half)
    with pytest.raises(OSError, match="free some space"):
        journal.boot("b1", 1)
    journal.close()
    assert (tmp_path / NAME).read_bytes() == b""
