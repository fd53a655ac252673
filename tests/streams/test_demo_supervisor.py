"""The demo's processes: watched, stopped, never left behind, with words for each failure."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from streams.demo import leftovers
from streams.demo.supervisor import Child, DemoError, Supervisor

STUBBORN = (
    "import signal,time,sys;signal.signal(signal.SIGTERM,signal.SIG_IGN);"
    "print('deaf',flush=True);time.sleep(600)"
)
PARENT = (
    "import subprocess,sys,time;"
    "subprocess.Popen([sys.executable,'-c','import time;time.sleep(600)']);"
    "print('up',flush=True);time.sleep(600)"
)


@pytest.fixture
async def supervisor(tmp_path: Path) -> AsyncIterator[Supervisor]:
    own = Supervisor(tmp_path, uuid.uuid4().hex)
    yield own
    own.kill_all()


async def said(supervisor: Supervisor, child: Child, word: str) -> None:
    await supervisor.until(word, lambda: word in child.log.read_text(), 10.0, child)


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


async def test_a_child_that_ends_by_itself_is_named_with_its_log(supervisor: Supervisor) -> None:
    supervisor.start("worker-1", python("print('no broker there'); raise SystemExit(3)"))
    with pytest.raises(DemoError, match=r"worker-1 .* code 3(.|\n)*no broker there"):
        await supervisor.until("never", lambda: False, 10.0)


async def test_what_comes_too_late_is_blamed_on_its_process(supervisor: Supervisor) -> None:
    child = supervisor.start("bridge", python("import time;print('hm',flush=True);time.sleep(60)"))
    await said(supervisor, child, "hm")
    with pytest.raises(DemoError, match=r"bridge .* within 0 s: readiness(.|\n)*hm"):
        await supervisor.until("readiness", lambda: False, 0.1, child)


async def test_a_one_shot_must_end_with_0(supervisor: Supervisor) -> None:
    await supervisor.finish(supervisor.start("good", python("pass")), 10.0)
    assert supervisor.children == []
    bad = supervisor.start("topics", python("print('no topics');raise SystemExit(2)"))
    with pytest.raises(DemoError, match=r"topics .* code 2(.|\n)*no topics"):
        await supervisor.finish(bad, 10.0)


async def test_a_deaf_child_is_killed_and_said_so(supervisor: Supervisor) -> None:
    child = supervisor.start("deaf", python(STUBBORN), patience_s=0.3)
    await said(supervisor, child, "deaf")
    await supervisor.stop_all()
    assert not child.running
    assert supervisor.killed == ["deaf"]


async def test_a_grandchild_goes_with_its_group(supervisor: Supervisor) -> None:
    child = supervisor.start("parent", python(PARENT))
    await said(supervisor, child, "up")
    assert len(leftovers.processes(supervisor.mark)) == 2
    await supervisor.stop_all()
    await supervisor.until("end", lambda: not leftovers.processes(supervisor.mark), 5.0)


async def test_a_process_that_escaped_its_group_is_found(supervisor: Supervisor) -> None:
    code = (
        "import os,subprocess,sys,time;"
        "p=subprocess.Popen([sys.executable,'-c','import time;time.sleep(600)'],"
        "start_new_session=True);print(p.pid,flush=True)"
    )
    child = supervisor.start("starter", python(code))
    await supervisor.finish(child, 10.0)
    escaped = int(child.log.read_text())
    try:
        assert [one.pid for one in leftovers.processes(supervisor.mark)] == [escaped]
    finally:
        os.kill(escaped, signal.SIGKILL)


def test_children_are_told_to_end_when_the_demo_is_killed(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    code = (
        "import sys,time;from pathlib import Path;from streams.demo.supervisor import Supervisor;"
        f"Supervisor(Path({str(tmp_path)!r}),{mark!r}).start('child',"
        "[sys.executable,'-c','import time;print(1,flush=True);time.sleep(600)']);"
        "time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as demo:
        try:
            assert holds(
                lambda: (
                    (tmp_path / "child.log").exists() and bool((tmp_path / "child.log").read_text())
                )
            )
        finally:
            demo.kill()
    try:
        assert holds(lambda: not leftovers.processes(mark))
    finally:
        for one in leftovers.processes(mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGKILL)


async def test_higher_ranks_are_stopped_first_whenever_started(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    code = (
        "import signal,sys,time\n"
        "def end(*_):\n"
        "    open(sys.argv[1],'a').write(sys.argv[2]);sys.exit(0)\n"
        "signal.signal(signal.SIGTERM,end);print('up',flush=True);time.sleep(600)"
    )
    for name, rank in (("worker", 1), ("node", 2), ("broker", 0)):  # a broker that came back
        command = [*python(code), str(tmp_path / "order"), f"{name} "]
        await said(supervisor, supervisor.start(name, command, rank=rank), "up")
    await supervisor.stop_all()
    assert (tmp_path / "order").read_text() == "node worker broker "
    assert supervisor.killed == []


def test_cgroups_are_found_by_name_in_any_hierarchy(tmp_path: Path) -> None:
    mountinfo = tmp_path / "mountinfo"
    lines = []
    for name, kind in (("cpu", "cgroup"), ("unified", "cgroup2"), ("other", "tmpfs")):
        (tmp_path / name / "demo-1").mkdir(parents=True)
        lines.append(f"30 23 0:26 / {tmp_path / name} rw,relatime - {kind} {kind} rw")
    mountinfo.write_text("\n".join(lines))
    found = leftovers.cgroups("demo-1", mountinfo)
    assert found == [tmp_path / "cpu" / "demo-1", tmp_path / "unified" / "demo-1"]
    assert leftovers.cgroups("demo-2", mountinfo) == []
    with pytest.raises(ValueError, match="root"):
        leftovers.cgroups("", mountinfo)


async def test_cpu_time_of_processes_is_read_in_microseconds(supervisor: Supervisor) -> None:
    child = supervisor.start("busy", python("while True: pass"))
    await supervisor.until(
        "50 ms of CPU", lambda: leftovers.cpu_us([child.pid])[child.pid] >= 50_000, 10.0
    )
    await supervisor.stop_all()
    assert leftovers.cpu_us([child.pid]) == {}


def holds(condition: object, within_s: float = 10.0) -> bool:
    assert callable(condition)
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False
