"""`slackwater node check`: what is there and what is not, without a write anywhere."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from node_agent import check
from node_agent.cgroup.layout import detect
from node_agent.check.cli import lines
from node_agent.check.finding import Asked, Finding
from node_agent.cli import main
from node_agent.workbench.groups import Groups
from streams import keyring
from tests.node_agent import kernels
from tests.node_agent.hostile.kit import snapshot
from tests.node_agent.jail import jailed, needs_util_linux
from tests.node_agent.kernel import real_groups
from tests.node_agent.kernels import KERNELS


@pytest.fixture
def groups() -> Iterator[Groups]:
    with real_groups() as made:
        yield made


def by_name(findings: list[Finding]) -> dict[str, Finding]:
    found = {each.name: each for each in findings}
    assert len(found) == len(findings)
    return found


def test_a_machine_that_can_work_is_said_to_and_is_not_touched(
    groups: Groups, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    groups.pod("besteffort", "batch")
    before = snapshot(groups, groups.name)
    words = ["check", "--be-root", groups.be_root, "--state-dir", str(tmp_path / "state")]
    assert main(words) == 0
    table = capsys.readouterr().out
    assert table.endswith("nothing essential is lacking\n")
    assert f"best-effort root    {groups.be_root}" in table
    assert main([*words, "--json"]) == 0
    said = orjson.loads(capsys.readouterr().out)
    assert said["sufficient"]
    found = {each["name"]: each for each in said["findings"]}
    assert found["writable cpu_quota"]["good"]
    assert found["controller cpu"]["found"] == f"v{groups.layout.versions()['cpu']}"
    assert snapshot(groups, groups.name) == before
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    "words", [["--be-root", "../x"], ["--be-root", ""], ["--wrong"], ["surplus"]]
)
def test_a_question_that_is_none_is_exit_code_2(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_what_is_essential_and_lacking_is_named(
    groups: Groups, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loose = tmp_path / "loose"
    loose.mkdir()
    loose.chmod(0o777)
    spoilt = tmp_path / "keys"
    keyring.make(spoilt)
    (spoilt / "worker.pub").write_text("spoilt")
    words = ["--be-root", f"{groups.name}/nowhere", "--state-dir", str(loose)]
    assert main(["check", *words, "--keys", str(spoilt)]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "essential and lacking: best-effort root, state folder, keys"


@needs_util_linux
def test_a_missing_right_is_named(groups: Groups) -> None:
    """As it is asked in a container that has neither a capability nor a writable group."""
    with tempfile.TemporaryDirectory() as state:
        command = [sys.executable, "-m", "node_agent", "check", "--json"]
        command += ["--be-root", groups.be_root, "--state-dir", state]
        done = subprocess.run(
            jailed("elsewhere", Path(state), command),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1, done
    found = {each["name"]: each for each in orjson.loads(done.stdout)["findings"]}
    quota = found["writable cpu_quota"]
    assert (quota["good"], quota["essential"]) == (False, True)
    assert quota["found"].startswith("Read-only file system: /sys/fs/cgroup")
    for name in ("CAP_KILL", "CAP_SYS_PTRACE", "CAP_PERFMON"):
        assert (found[name]["good"], found[name]["found"]) == (False, "no")
        assert found[name]["without"]


@pytest.mark.parametrize("kernel", kernels.names())
def test_every_layout_can_be_asked(kernel: str, tmp_path: Path) -> None:
    base = KERNELS / kernel
    layout = detect(str(base))
    found = by_name(check.look(Asked(layout, None, tmp_path, base=str(base))))
    versions = layout.versions()
    for name in ("cpu", "memory", "cpuset"):
        wanted = f"v{versions[name]}" if name in versions else "not mounted"
        assert found[f"controller {name}"].found == wanted
    assert found["cgroup2 mount"].good is (layout.unified is not None)
    assert found["CAP_KILL"].essential is (layout.unified is None)
    assert found["kernel"].found == (base / "proc/sys/kernel/osrelease").read_text().strip()


def test_without_control_groups_nothing_works(tmp_path: Path) -> None:
    findings = check.look(Asked(None, None, tmp_path))
    assert not check.sufficient(findings)
    assert lines(findings)[-1].startswith("essential and lacking: control groups")


def test_runtime_and_cpu_manager_are_found_by_looking(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as base, socket.socket(socket.AF_UNIX) as server:
        home = Path(base, "run/crio")
        home.mkdir(parents=True)
        server.bind(str(home / "crio.sock"))
        server.listen()
        Path(base, "proc/self").mkdir(parents=True)
        Path(base, "proc/self/status").write_text("CapEff:\t0000000000000020\n")
        (tmp_path / "cpu_manager_state").write_text('{"policyName": "static", "entries": {}}')
        asked = Asked(None, None, tmp_path, kubelet_dir=tmp_path, base=base)
        found = by_name(check.look(asked))
    assert found["container runtime"].found == "/run/crio/crio.sock"
    assert (found["CPU manager"].good, found["CPU manager"].found) == (False, "static")
    assert found["CAP_KILL"].good
    assert not found["CAP_PERFMON"].good


def test_everything_that_can_lack_says_what_for(tmp_path: Path) -> None:
    for each in check.look(Asked(None, None, tmp_path)):
        assert each.good or each.without, each
