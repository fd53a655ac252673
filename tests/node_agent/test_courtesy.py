"""The agent's scheduling manners, on this kernel."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from node_agent.courtesy import _ATTR, _SCHED_SETATTR, DEFAULT_NS, LONG_NS, set_slice
from tests.support import unavailable

_LIBC = ctypes.CDLL(None, use_errno=True)
# The first kernel that takes slices from user space.
pytestmark = [pytest.mark.kernel, pytest.mark.needs_linux(6, 12)]


def slice_ns(tid: int) -> int:
    """What the kernel says; sched_getattr follows sched_setattr in the table of system calls."""
    buffer = ctypes.create_string_buffer(_ATTR.size)
    number = _SCHED_SETATTR[platform.machine()] + 1
    assert _LIBC.syscall(number, tid, buffer, _ATTR.size, 0) == 0
    return int(_ATTR.unpack(buffer.raw)[5])


@pytest.fixture(autouse=True)
def _kernel_with_slices() -> None:
    if platform.machine() not in _SCHED_SETATTR:
        unavailable(f"the system call's number on {platform.machine()} is not known")


def test_every_thread_takes_the_long_slice_and_keeps_its_nice() -> None:
    code = """
import os, sys, threading
os.nice(3)
thread = threading.Thread(target=sys.stdin.read)
thread.start()
print("up", flush=True)
"""
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        assert set_slice(pid=child.pid)
        threads = [int(entry.name) for entry in Path(f"/proc/{child.pid}/task").iterdir()]
        assert len(threads) == 2
        assert {slice_ns(tid) for tid in threads} == {LONG_NS}
        assert {os.getpriority(os.PRIO_PROCESS, tid) for tid in threads} == {
            min(os.nice(0) + 3, 19)
        }
    finally:
        child.communicate(b"")


def test_a_thread_started_later_inherits_it_and_the_default_can_be_had_back() -> None:
    before = slice_ns(0)
    seen: list[int] = []
    assert set_slice()
    try:
        thread = threading.Thread(target=lambda: seen.append(slice_ns(0)))
        thread.start()
        thread.join()
        assert seen == [LONG_NS]
        assert before < LONG_NS
    finally:
        assert set_slice(DEFAULT_NS)
    assert slice_ns(0) == before


def test_a_process_that_has_ended_is_no_failure() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert set_slice(pid=child.pid)


def test_an_unknown_machine_is_told_and_harms_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "vax")
    assert not set_slice()
