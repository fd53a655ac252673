"""S4, R10, R11: where the agent can write, what it leaves behind, in which order it writes."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_agent import originals
from node_agent.actuators import cpu_quota
from node_agent.actuators.beneath import UnsafePath
from node_agent.actuators.subtree import WRITABLE, Subtree
from node_agent.hold import Hold
from node_agent.journal import Journal
from node_agent.workbench.groups import Groups
from schemas import codec
from schemas.records import PolicyRecord
from tests.node_agent.hostile.kit import (
    POLICY,
    make,
    quota_us,
    snapshot,
    write_inventory,
)
from tests.node_agent.jail import needs_util_linux
from tests.node_agent.kernel import eventually
from tests.support import unavailable

PART = st.one_of(
    st.sampled_from(["", ".", "..", "online", "web", "batch", "/", "../../online", "a\0b", "a\nb"]),
    st.text(max_size=20),
)


@given(parts=st.lists(PART, max_size=5), file=st.one_of(st.sampled_from(sorted(WRITABLE)), PART))
def test_s4_no_path_and_no_file_name_leads_out_of_the_best_effort_root(
    parts: list[str], file: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    mount = tmp_path_factory.mktemp("mount")
    for group in ("be/batch", "online/web"):
        (mount / group).mkdir(parents=True)
        (mount / group / "cpu.idle").write_text("0")
    (mount / "be" / "link").symlink_to(mount / "online")
    tree = Subtree(str(mount), 1, "be")
    try:
        tree.write((*parts, "batch") if parts else ("link", "web"), file, "1")
    except (UnsafePath, OSError, ValueError):
        pass
    finally:
        tree.close()
    assert (mount / "online/web/cpu.idle").read_text() == "0"
    assert sorted(p.name for p in (mount / "online/web").iterdir()) == ["cpu.idle"]


def test_s4_a_link_and_a_file_in_the_way_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "be").mkdir()
    (tmp_path / "online").mkdir()
    (tmp_path / "online" / "cpu.idle").write_text("0")
    (tmp_path / "be" / "batch").symlink_to("../online")
    (tmp_path / "be" / "cpu.idle").symlink_to("../online/cpu.idle")
    tree = Subtree(str(tmp_path), 1, "be")
    try:
        with pytest.raises(UnsafePath):
            tree.write(("batch",), "cpu.idle", "1")
        with pytest.raises(OSError, match="symbolic links"):
            tree.write((), "cpu.idle", "1")
    finally:
        tree.close()
    assert (tmp_path / "online" / "cpu.idle").read_text() == "0"


MOUNTED_OVER = """
import sys
from node_agent.actuators.beneath import UnsafePath
from node_agent.actuators.subtree import Subtree
tree = Subtree(sys.argv[1], 1, sys.argv[2])
try:
    tree.write(("batch",), "cpu.shares", "7")
except UnsafePath:
    print("refused")
"""


@needs_util_linux
def test_s4_an_online_group_mounted_over_a_best_effort_one_is_not_entered(groups: Groups) -> None:
    cpu = groups.layout.hierarchy("cpu")
    assert cpu is not None
    groups.pod("besteffort", "batch")
    groups.pod("online", "web")
    over = f"{cpu.mount}/{groups.be_root}/batch"
    script = f'mount --bind {cpu.mount}/{groups.name}/online/web {over} && exec "$@"'
    code = [sys.executable, "-c", MOUNTED_OVER, cpu.mount, groups.be_root]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", *code],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    if "unshare" in done.stderr or "mount:" in done.stderr:
        unavailable(f"no mounts of one's own: {done.stderr.strip()}")
    assert done.stdout.strip() == "refused", done
    shares = Path(f"{cpu.mount}/{groups.name}/online/web/cpu.shares")
    if shares.exists():
        assert shares.read_text().strip() == "1024"


def agent_process(inventory: Path, state: Path) -> subprocess.Popen[bytes]:
    """The agent as it runs, its policy on its shelf, without a broker."""
    state.mkdir(mode=0o750, exist_ok=True)
    text = codec.encode(PolicyRecord("default", 1, "", POLICY)).decode()
    (state / "policies.json").write_bytes(orjson.dumps({"default": text}))
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "node_agent", "run", "--node", "n", "--period", "100ms"),
            *("--brokers", "127.0.0.1:1", "--inventory", str(inventory)),
            *("--state-dir", str(state)),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def test_r10_killed_at_any_moment_release_all_leaves_every_file_as_it_was(
    groups: Groups, tmp_path: Path
) -> None:
    inventory, state = write_inventory(groups, tmp_path / "inventory.yaml"), tmp_path / "state"
    make(groups, f"{groups.be_root}/batch/child", quota=150_000)
    before = snapshot(groups, groups.name)
    journal = state / "journal.jsonl"
    moments = {
        "the first line of the journal": journal.exists,
        "the first original": lambda: journal.exists() and b"original" in journal.read_bytes(),
        "the first write": lambda: snapshot(groups, groups.name) != before,
        "the floor in force": lambda: quota_us(groups) == 1000,
    }
    for moment, condition in moments.items():
        agent = agent_process(inventory, state)
        try:
            eventually(condition, 20, moment)
        finally:
            agent.send_signal(signal.SIGKILL)
            agent.wait(10)
        done = subprocess.run(
            [sys.executable, "-m", "node_agent", "release-all", "--state-dir", str(state)],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == 0, done
        assert snapshot(groups, groups.name) == before, moment
        for file in state.iterdir():
            file.unlink()


def test_r10_the_next_start_and_sigterm_give_back_what_a_kill_left(
    groups: Groups, tmp_path: Path
) -> None:
    inventory, state = write_inventory(groups, tmp_path / "inventory.yaml"), tmp_path / "state"
    before = snapshot(groups, groups.name)
    ends = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)
    for starts, number in enumerate(ends, start=1):
        agent = agent_process(inventory, state)
        try:
            eventually(lambda n=starts: at_work(state, n), 20, "the floor in force")  # type: ignore[misc]
            assert quota_us(groups) == 1000
        finally:
            agent.send_signal(number)
            agent.wait(20)
    assert snapshot(groups, groups.name) == before


def at_work(state: Path, starts: int) -> bool:
    """Whether the journal's newest start, the n-th, has said what is in force."""
    path = state / "journal.jsonl"
    lines = path.read_bytes().split(b'"kind":"boot"') if path.exists() else []
    return len(lines) == starts + 1 and b'"in_force_milli":10' in lines[-1]


@pytest.mark.parametrize("seed", range(4))
def test_r11_no_order_of_limits_is_refused_and_no_child_is_ever_wider(
    seed: int, groups: Groups, tmp_path: Path
) -> None:
    """Random trees with quotas of their own, random ceilings, up and down, on this kernel."""
    dice = random.Random(seed)
    for number in range(6):
        path = f"{groups.be_root}/batch" + "".join(f"/g{dice.randrange(3)}" for _ in range(3))
        make(groups, path)
        own = dice.choice([None, 20_000, 150_000])
        if own is not None and quota_us(groups, path) == -1:
            try:
                make(groups, path, quota=own)
            except OSError:
                assert number  # wider than the parent that was drawn before it
    before = snapshot(groups, groups.be_root)
    journal = Journal(tmp_path, "k" * 32)
    hold = Hold(journal, use_idle=True, dry_run=False)
    hold.trees = originals.open_trees(groups.layout, groups.be_root)
    try:
        for _ in range(30):
            allow = dice.choice([10, 50, 99, 100, 300, 1000, 2000, None])
            asked = -1 if allow is None else allow
            assert hold.quota(allow) == asked
            hold.idle()
            root, *children = cpu_quota.observe(hold.trees.cpu)
            assert root.milli == asked
            assert not [
                child for child in children if child.quota_us > 0 and child.wider_than(root)
            ]
        assert hold.release() == []
        assert snapshot(groups, groups.be_root) == before
    finally:
        hold.trees.close()
        journal.close()
