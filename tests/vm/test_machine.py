"""The runner's grip on qemu: lines stream, a hung machine ends and is told, none is left."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.vm import machine
from tests.vm.debian import Kernel, MachineError

NOWHERE = Kernel("0", Path("/k"), Path("/m"))
DISKS = machine.Disks(*(Path("/d") for _ in range(4)))
Stand = Callable[[str], Path]


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stand:
    """A program instead of qemu, which leaves its process id behind."""

    def make(script: str) -> Path:
        program = tmp_path / "qemu-system-x86_64"
        program.write_text(f"#!/bin/sh\necho $$ >{tmp_path}/pid\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        return tmp_path / "pid"

    return make


def gone(pid_file: Path) -> bool:
    return not Path("/proc", pid_file.read_text().strip()).exists()


def test_its_lines_stream_and_it_may_end_by_itself(stand_in: Stand) -> None:
    pid = stand_in("printf 'one\\r\\ntwo\\r\\n'")
    lines: list[str] = []
    machine.run(NOWHERE, DISKS, lines.append, 20, 20)
    assert lines == ["one", "two"]
    assert gone(pid)


@pytest.mark.parametrize(
    ("within_s", "silent_s", "reason"),
    [(0.5, 20, "did not end within 0 s"), (20, 0.5, "said nothing for 0 s")],
)
def test_a_hung_machine_is_killed_and_its_last_lines_are_told(
    stand_in: Stand, within_s: float, silent_s: float, reason: str
) -> None:
    pid = stand_in("echo first; printf 'login: '; exec sleep 60")
    with pytest.raises(MachineError, match=f"{reason}.*\n  first\n  login: "):
        machine.run(NOWHERE, DISKS, lambda _: None, within_s, silent_s)
    assert gone(pid)


def test_a_failing_qemu_is_told(stand_in: Stand) -> None:
    stand_in("exit 3")
    with pytest.raises(MachineError, match="qemu ended with 3"):
        machine.run(NOWHERE, DISKS, lambda _: None, 20, 20)


def test_it_dies_with_the_runner_whatever_ends_that(stand_in: Stand) -> None:
    pid = stand_in("exec sleep 60")
    code = (
        "from tests.vm import machine; from tests.vm.test_machine import *\n"
        "machine.run(NOWHERE, DISKS, print, 60, 60)"
    )
    runner = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[2])
    until = time.monotonic() + 20
    while not (pid.exists() and pid.read_text().strip()):
        assert time.monotonic() < until, "it never started"
        time.sleep(0.02)  # between two looks
    runner.kill()
    runner.wait()
    while not gone(pid):
        assert time.monotonic() < until, "it outlived its runner"
        time.sleep(0.02)  # between two looks
