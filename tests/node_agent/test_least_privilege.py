"""S4: the agent without `privileged`: few capabilities or none, one writable group, any user."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from node_agent.settings import to_wire
from node_agent.workbench.groups import Groups
from streams.dev_broker import DevBroker
from tests.node_agent.hostile.kit import ended, process, snapshot
from tests.node_agent.jail import jailed, needs_util_linux
from tests.node_agent.kernel import real_groups
from tests.node_agent.test_loop import (
    POLICY,
    Centre,
    evict,
    quota_milli,
    settings_for,
    suppress,
)
from tests.node_agent.test_outbox import topics, until

pytestmark = needs_util_linux
SOMEBODY = 65_534
SET_USER = f"os.setgid({SOMEBODY}); os.setuid({SOMEBODY}); sys.stdin.read()"


@pytest.fixture
def groups() -> Iterator[Groups]:
    with real_groups() as made:
        yield made


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that other users can enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        (path / "state").mkdir(mode=0o750)
        yield path


@pytest.fixture
def inventory(groups: Groups, folder: Path) -> Path:
    groups.pod("online", "web")
    groups.pod("besteffort", "batch")
    path = folder / "inventory.yaml"
    path.write_text(f"""
best_effort_root: {groups.be_root}
pods:
  - {{uid: web, name: web, qos: LS, cgroup: {groups.name}/online/web}}
  - {{uid: batch, name: batch, qos: BE, cgroup: {groups.be_root}/batch}}
""")
    return path


@asynccontextmanager
async def agent(
    centre: Centre, groups: Groups, inventory: Path, state: Path, *, capabilities: str, uid: int
) -> AsyncIterator[subprocess.Popen[bytes]]:
    """The agent in its jail, until SIGTERM; it must end in order."""
    os.chown(state, uid, uid)
    # What `slackwater node run` becomes: another user may not be allowed to start this interpreter
    # a second time.
    settings = replace(settings_for(centre, state.parent, inventory), state_dir=state)
    said = orjson.dumps(to_wire(settings)).decode()
    command = [sys.executable, "-m", "node_agent.process", said]
    root = groups.be_root
    jail = jailed(root, state, command, capabilities=capabilities, uid=uid)
    with (state.parent / "agent.log").open("wb") as log:
        running = await asyncio.to_thread(subprocess.Popen, jail, stdout=log, stderr=log)
    try:
        yield running
    except AssertionError as error:
        raise AssertionError((state.parent / "agent.log").read_text()) from error
    finally:
        running.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(running.wait, 20)
        if running.poll() is None:
            running.kill()
            running.wait()
    assert running.returncode == 0, (state.parent / "agent.log").read_text()


def hand_over(groups: Groups, uid: int) -> None:
    """The best-effort groups and their files belong to a user: what delegation means."""
    for mount in groups.layout.mounts():
        top = Path(mount, groups.be_root)
        for path in (top, *top.rglob("*")):
            os.chown(path, uid, uid)


@pytest.mark.parametrize(
    ("capabilities", "uid"),
    [("kill", 0), ("", 0), ("kill", SOMEBODY), ("", SOMEBODY)],
    ids=["root with CAP_KILL", "root with none", "a user with CAP_KILL", "a user with none"],
)
async def test_s4_suppress_idle_evict_and_restore_without_privileges(
    capabilities: str,
    uid: int,
    broker: DevBroker,
    prefix: str,
    groups: Groups,
    inventory: Path,
    folder: Path,
) -> None:
    await topics(broker, prefix, POLICY)
    if uid:
        hand_over(groups, uid)
    before = snapshot(groups, groups.name)
    batch = f"{groups.be_root}/batch"
    idle = groups.directory("cpu", groups.be_root) / "cpu.idle"
    centre = Centre(broker, prefix)
    async with centre.at_work():
        with process(groups, batch, SET_USER) as pid:
            async with agent(
                centre, groups, inventory, folder / "state", capabilities=capabilities, uid=uid
            ):
                await until(lambda: quota_milli(groups) == 10, 30, "the floor")
                await until(lambda: bool(centre.acks), 20, "an ack")
                lowered = suppress(5, 300)
                await centre.say(lowered)
                await until(lambda: quota_milli(groups) == 300, 10, "the command in force")
                if idle.exists():
                    assert idle.read_text().strip() == "1"
                gone = evict(6, "batch")
                await centre.say(gone)
                await until(lambda: bool(centre.answers(gone)), 10, "the eviction's ack")
                ack = centre.answers(gone)[0]
                if groups.layout.unified is None and not capabilities:
                    assert (ack.outcome, ack.reason) == ("refused", "evict:EPERM")
                else:
                    assert (ack.outcome, ack.reason) == ("applied", "")
                    assert ended(pid)
    assert snapshot(groups, groups.name) == before


def test_s4_in_the_jail_nothing_of_an_online_pod_can_be_written(
    groups: Groups, inventory: Path, folder: Path
) -> None:
    """The kernel says so, whatever the program would do."""
    assert inventory.is_file()
    code = """
import pathlib, sys
tried = refused = 0
for mount in sys.argv[2:]:
    for file in pathlib.Path(mount, sys.argv[1]).rglob("*"):
        if file.is_file() and file.stat().st_mode & 0o200:
            tried += 1
            try:
                file.open("r+b").close()
            except OSError:
                refused += 1
print(tried, refused)
"""
    command = [sys.executable, "-c", code, f"{groups.name}/online", *groups.layout.mounts()]
    done = subprocess.run(
        jailed(groups.be_root, folder / "state", command, capabilities="kill"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    tried, refused = map(int, done.stdout.split())
    assert tried == refused > 50, done
