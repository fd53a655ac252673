"""`slackwater node drill`: every step on this kernel, Ctrl-C, kill -9, and what is not ours."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from node_agent.cgroup.layout import detect
from node_agent.cli import main
from node_agent.drill import place
from node_agent.drill.cli import line
from node_agent.drill.steps import Step
from node_agent.workbench.groups import remove
from node_agent.workbench.worker import Worker
from tests.node_agent.kernel import real_layout
from tests.support import patient

pytestmark = pytest.mark.kernel
STEPS = ["stage", "raise", "idle", "suppress", "evict", "memory", "oom", "give back"]


def started(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "node_agent", "drill", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def told(running: subprocess.Popen[str], word: str) -> None:
    """Wait for the line of a step."""
    assert running.stdout is not None
    for said in running.stdout:
        if f" {word} " in said:
            return
    raise AssertionError(f"ended before {word}")


def nothing_left(pid: int) -> bool:
    layout = real_layout()
    groups = [Path(m, place.name(pid, None)) for m in layout.mounts()]
    return not any(path.exists() for path in (*groups, place.folder(pid)))


def dead_pid() -> int:
    """A process id that nobody has any more."""
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


def test_every_step_goes_as_it_must_and_nothing_is_left() -> None:
    real_layout()
    running = started("--json")
    out, err = running.communicate(timeout=patient(120))
    assert out, (running.returncode, err)
    said = orjson.loads(out)
    assert (running.returncode, err, said["ok"]) == (0, "", True), said
    assert [step["name"] for step in said["steps"]] == STEPS
    outcomes = {step["name"]: step["outcome"] for step in said["steps"]}
    assert set(outcomes.values()) <= {"ok", "skipped"}
    assert {outcomes[name] for name in ("suppress", "evict", "memory", "oom")} == {"ok"}
    assert nothing_left(running.pid)


def test_below_a_group_that_is_named() -> None:
    layout = real_layout()
    home = "swt-drill-home"
    for mount in layout.mounts():
        Path(mount, home).mkdir(exist_ok=True)
        for file in ("cpuset.cpus", "cpuset.mems"):
            if Path(mount, file).exists() and layout.versions().get("cpuset") == 1:
                Path(mount, home, file).write_text(Path(mount, file).read_text())
    try:
        running = started("--under", home)
        told(running, "suppress")
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=patient(60))
        assert (running.returncode, err) == (130, ""), out
        for mount in layout.mounts():
            assert not [path for path in Path(mount, home).iterdir() if path.is_dir()]
    finally:
        remove(layout, home)


@pytest.mark.parametrize("step", ["stage", "evict"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_told_to_end_it_takes_everything_away(step: str, number: int) -> None:
    real_layout()
    running = started()
    told(running, step)
    running.send_signal(number)
    _, err = running.communicate(timeout=patient(60))
    assert running.returncode in (1, 130)
    assert err == ""
    assert nothing_left(running.pid)


@pytest.mark.parametrize("who", ["drill", "release-all"])
def test_what_a_killed_drill_left_goes_with_the_next_one_or_release_all(
    who: str, tmp_path: Path
) -> None:
    real_layout()
    running = started()
    told(running, "suppress")
    running.kill()
    running.communicate(timeout=patient(30))
    assert not nothing_left(running.pid)
    if who == "drill":
        after = started("--json")
        told_by = orjson.loads(after.communicate(timeout=patient(120))[0])
        assert told_by["cleared"] == [place.name(running.pid, None)]
        assert told_by["ok"]
    else:
        assert main(["release-all", "--state-dir", str(tmp_path), "--json"]) == 0
    assert nothing_left(running.pid)


def test_what_no_drill_made_is_named_and_stays(capsys: pytest.CaptureFixture[str]) -> None:
    layout = real_layout()
    for strange in ("", "/besteffort/mine"):
        group = place.name(dead_pid(), None)
        top = Path(layout.anchor, group + strange)
        top.mkdir(parents=True)
        process = subprocess.Popen(["sleep", "60"])
        try:
            if not strange:
                (top / "cgroup.procs").write_text(str(process.pid))
            assert main(["drill"]) == 1
            said = capsys.readouterr().err
            assert "no drill" in said
            assert group in said
            assert process.poll() is None
            assert top.is_dir()
        finally:
            process.kill()
            process.wait()
            remove(layout, group)


def test_one_drill_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    real_layout()
    running = started()
    try:
        told(running, "stage")
        assert main(["drill"]) == 1
        assert "another drill is at it" in capsys.readouterr().err
    finally:
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=patient(60))
    assert nothing_left(running.pid)


def test_a_worker_is_known_by_its_group() -> None:
    layout = detect()
    group = place.name(dead_pid(), None)
    try:
        for mount in layout.mounts():
            Path(mount, group).mkdir()
            for file in ("cpuset.cpus", "cpuset.mems"):
                if Path(mount, group, file).exists() and layout.versions().get("cpuset") == 1:
                    Path(mount, group, file).write_text(Path(mount, file).read_text())
        worker = Worker("node_agent.drill.work", group, {"kind": "rest"})
        try:
            with pytest.raises(place.NotOurs, match="no drill's"):
                place.clear(layout, None)  # in the top group itself no drill puts work
            assert worker.alive
        finally:
            worker.stop()
    finally:
        remove(layout, group)


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drill", "--under", "../x"]) == 2
    assert main(["drill", "surplus"]) == 2
    assert capsys.readouterr().err.count("\n") == 2


def test_a_line_says_step_time_and_what_was_seen() -> None:
    assert line(Step("suppress", "ok", "quota 100 milli", 1.44)) == (
        "ok      suppress       1.4 ms  quota 100 milli"
    )
