"""The agent's own folder: spoilt journals, links, pipes, other users, two agents at once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from node_agent.journal import NAME, SPOILT_NAME, Journal, recall
from node_agent.lock import AlreadyRunning, UnsafeFolder, check, lock
from node_agent.sampler import _kernel_boot
from node_agent.workbench.groups import Groups
from tests.node_agent.hostile.kit import besieged, from_file, quota_us, write_inventory

pytestmark = pytest.mark.only_outside("what lies in files reads the same on every kernel")
GOOD = {"quota_us": -1, "period_us": 100_000}
WIRED = """
import asyncio, sys
from pathlib import Path
from node_agent.cgroup.layout import detect
from node_agent.discovery import Discovery
from node_agent.inventory_file import InventoryFile
from node_agent.loop import NodeAgent
from node_agent.sampler import SystemClock
from node_agent.settings import Settings

file, layout = InventoryFile(sys.argv[1]), detect()
source = Discovery("n", layout, first_rev=1, kubernetes=False, file=file)
settings = Settings("n", "127.0.0.1:1", "t.", Path(sys.argv[2]))

async def main():
    NodeAgent(settings, layout, source, SystemClock()).close()

asyncio.run(main())
"""
LINES: dict[str, Any] = {
    "a list": [],
    "a number": 5,
    "nothing": None,
    "no kind": {},
    "values that are no mapping": {"values": 5},
    "values that are no numbers": {"values": {"quota_us": "x", "period_us": None}},
    "no values": {"values": {}},
    "a group that climbs": {"group": "../online"},
    "an absolute group": {"group": "/"},
    "a group that is a number": {"group": 5},
    "a root that climbs": {"root": "../.."},
    "an empty root": {"root": ""},
    "the hierarchy's root": {"root": "/"},
    "a root that is a number": {"root": 5},
    "CPUs by name": {"knob": "cpuset", "values": {"x": 1}},
    "idle without a weight": {"knob": "cpu_idle", "values": {"idle": 1}},
    "half a command": {"kind": "command", "id": "x", "source": "command"},
    "an act without a command": {"kind": "intent", "mono_us": 1},
    "a place that is none": {"kind": "kept", "knob": "cpu_shares", "places": {"a": 5}},
    "a standing of other types": {"kind": "standing", "boot": 5, "originals": [], "commands": []},
    "a value in force that is a word": {
        "kind": "in_force",
        "in_force_milli": "x",
        "granted_milli": 1,
    },
    "a hundred thousand brackets": b"[" * 100_000,
    "bytes": bytes(set(range(256)) - {10}) * 100,
    "eight megabytes": b'{"a": "' + b"x" * (8 << 20) + b'"}',
}


def with_line(state: Path, be_root: str, line: Any) -> None:
    """A journal of this boot: one original that is good, and a line that is not."""
    state.mkdir(mode=0o750)
    kernel = _kernel_boot("/")
    boot = {"kind": "boot", "boot": "0" * 32, "kernel_boot": kernel, "supersedes": ""}
    good = {"kind": "original", "root": be_root, "knob": "cpu_quota", "group": ".", "values": GOOD}
    if isinstance(line, dict) and "kind" not in line and line:
        line = good | line
    raw = line if isinstance(line, bytes) else orjson.dumps(line)
    text = b"\n".join([orjson.dumps({**boot, "mono_us": 1}), orjson.dumps(good), raw, b""])
    (state / NAME).write_bytes(text)


@pytest.mark.parametrize("word", LINES)
async def test_a_line_that_is_not_sound_is_passed_over(
    word: str, groups: Groups, tmp_path: Path
) -> None:
    inventory = write_inventory(groups, tmp_path / "inventory.yaml")
    state = tmp_path / "state"
    with_line(state, groups.be_root, LINES[word])
    assert recall(state).broken_lines == 1
    assert recall(state).originals == {groups.be_root: {"cpu_quota": {".": GOOD}}}
    async with besieged(groups, from_file(groups, inventory), state):
        assert quota_us(groups) == 1000
    assert quota_us(groups) == -1


def _link(path: Path) -> None:
    victim = path.parent.parent / "precious"
    victim.write_text("precious")
    path.symlink_to(victim)


def _grown(path: Path) -> None:
    with path.open("w") as file:
        file.truncate(3 << 30)


INSTEAD: dict[str, Callable[[Path], None]] = {
    "a pipe": os.mkfifo,
    "a link": _link,
    "a folder": Path.mkdir,
    "three gigabytes": _grown,
}


@pytest.mark.parametrize("word", INSTEAD)
async def test_what_is_no_journal_is_put_aside(word: str, groups: Groups, tmp_path: Path) -> None:
    inventory = write_inventory(groups, tmp_path / "inventory.yaml")
    state = tmp_path / "state"
    state.mkdir(mode=0o750)
    INSTEAD[word](state / NAME)
    async with besieged(groups, from_file(groups, inventory), state):
        assert quota_us(groups) == 1000
    assert quota_us(groups) == -1
    assert SPOILT_NAME in {entry.name for entry in state.iterdir()}
    assert (state / NAME).is_file()
    if word == "a link":
        assert (tmp_path / "precious").read_text() == "precious"


@pytest.mark.parametrize("name", ["lock", "policies.json"])
@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, _link])
def test_no_file_of_the_folder_is_waited_for_or_followed(
    name: str, make: Callable[[Path], None], groups: Groups, tmp_path: Path
) -> None:
    """Refused or passed over within seconds, whatever stands in its place."""
    inventory = write_inventory(groups, tmp_path / "inventory.yaml")
    (tmp_path / "state").mkdir(mode=0o750)
    make(tmp_path / "state" / name)
    done = subprocess.run(
        [sys.executable, "-c", WIRED, str(inventory), str(tmp_path / "state")],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    if done.returncode:
        assert "OSError" in done.stderr or "IsADirectoryError" in done.stderr, done.stderr
    if make is _link:
        assert (tmp_path / "precious").read_text() == "precious"


def test_a_folder_of_others_is_no_state_folder(tmp_path: Path) -> None:
    for mode in (0o770, 0o757, 0o1777):
        folder = tmp_path / f"{mode:o}"
        folder.mkdir()
        folder.chmod(mode)
        with pytest.raises(UnsafeFolder, match=f"chmod go-w {folder}"):
            lock(folder)
    if os.geteuid() == 0:
        foreign = tmp_path / "foreign"
        foreign.mkdir(mode=0o700)
        os.chown(foreign, 65_534, 65_534)
        with pytest.raises(UnsafeFolder, match="user 65534"):
            check(foreign)


def test_a_new_folder_is_the_agents_alone(tmp_path: Path) -> None:
    os.close(lock(tmp_path / "a" / "state"))
    assert (tmp_path / "a" / "state").stat().st_mode & 0o027 == 0


def test_a_lock_that_is_swapped_is_taken_again(tmp_path: Path) -> None:
    """Who removes the file while it is held makes no room for a second agent of the same name."""
    held = lock(tmp_path)
    with pytest.raises(AlreadyRunning):
        lock(tmp_path)
    (tmp_path / "lock").unlink()
    second = lock(tmp_path)  # the first can no longer be seen, but who comes third sees this one
    with pytest.raises(AlreadyRunning):
        lock(tmp_path)
    os.close(held)
    os.close(second)


def test_one_of_many_that_start_at_once_gets_the_lock(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom node_agent.lock import lock\n"
        "sys.stdin.readline()\n"
        "try:\n    held = lock(Path(sys.argv[1]))\nexcept OSError:\n    print('no', flush=True)\n"
        "else:\n    print('yes', flush=True)\nsys.stdin.readline()\n"
    )
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(8)
    ]
    try:
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        said = [racer.stdout.readline().strip() for racer in racers if racer.stdout is not None]
        assert sorted(said) == ["no"] * 7 + ["yes"]
    finally:
        for racer in racers:
            racer.communicate("end\n", timeout=20)


def test_a_name_that_is_no_text_comes_back_from_the_file(tmp_path: Path) -> None:
    name = os.fsdecode(b"batch/\xff\xfe")
    journal = Journal(tmp_path, "k" * 32)
    journal.boot("b", 1)
    journal.keep_originals("be", [("cpu_quota", name, GOOD)])
    journal.close()
    again = Journal(tmp_path, "k" * 32)
    assert again.originals("be", "cpu_quota") == {name: GOOD}
    again._rotate()
    again.forget("be", "cpu_quota", name)
    again.close()
    assert recall(tmp_path).originals["be"]["cpu_quota"] == {}
