"""A whole agent under attack: real groups of this kernel, no broker, and questions to it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

from node_agent.discovery import Discovery
from node_agent.inventory_file import InventoryFile
from node_agent.loop import NodeAgent
from node_agent.sampler import SystemClock
from node_agent.settings import Settings
from node_agent.workbench.groups import Groups
from schemas.records import Cause, Command, PolicyRecord

NODE = "besieged"
_FIGURES = (
    "procs", "tasks", "threads", "usage", "stat", "pressure", "failcnt", "peak", "event",
    "reset", "force_empty",
)  # fmt: skip
PERIOD_MS = 100
NOBODY = "127.0.0.1:1"
FOREVER_MS = 1 << 50
FLOOR_US = 1_000  # of 100 ms: what no command has granted yet
HALF_MILLI = (os.cpu_count() or 1) * 500
# The floor of half the machine makes the local law say at least that, whatever else runs here.
POLICY = """
name: default
rollout: {stage: expand}
suppress: {threshold_percent: 100, floor_percent: 50, raise_permille: 1000}
evict_memory: {enabled: true, threshold_percent: 99, lower_percent: 98}
"""


def inventory_text(groups: Groups, more: str = "") -> str:
    return f"""
best_effort_root: {groups.be_root}
pods:
  - {{uid: web, name: web, qos: LS, cgroup: {groups.name}/online/web}}
  - {{uid: batch, name: batch, qos: BE, cgroup: {groups.be_root}/batch}}
{more}"""


def write_inventory(groups: Groups, path: Path) -> Path:
    """One online pod, ``web``, and one best-effort pod, ``batch``."""
    groups.pod("online", "web")
    groups.pod("besteffort", "batch")
    path.write_text(inventory_text(groups))
    return path


def from_file(groups: Groups, path: Path) -> Discovery:
    """Pods are those of the file."""
    return Discovery(
        NODE, groups.layout, first_rev=1, kubernetes=False, file=InventoryFile(str(path))
    )


def discovered(groups: Groups) -> Discovery:
    """Pods are whatever groups there are below both sides: names are the tenants' own."""
    return Discovery(
        NODE,
        groups.layout,
        first_rev=1,
        roots=(f"{groups.name}/*/*",),
        be_root=groups.be_root,
        kubernetes=False,
    )


class Besieged:
    """A running agent."""

    def __init__(self, agent: NodeAgent, life: asyncio.Task[int]) -> None:
        self.agent, self.life = agent, life
        self._offset = self._versions = 0

    async def beats(self, count: int = 3, seconds: float = 60.0) -> float:
        """Let it live for some periods; the longest time between two sweeps, in seconds."""
        longest, last = 0.0, time.monotonic()
        stats = self.agent.sampler.stats
        seen, wanted = stats.sweeps, stats.sweeps + count
        end = time.monotonic() + seconds
        while stats.sweeps < wanted:
            assert not self.life.done(), self.life
            assert time.monotonic() < end, f"{stats.sweeps - wanted + count} of {count} sweeps"
            await asyncio.sleep(0.005)
            if stats.sweeps != seen:
                longest, last = max(longest, time.monotonic() - last), time.monotonic()
                seen = stats.sweeps
        assert not self.life.done(), self.life
        return longest

    async def until(self, condition: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert not self.life.done(), self.life
            assert time.monotonic() < end, f"not within {seconds} s: {what}"
            await asyncio.sleep(0.005)

    def command(self, **said: object) -> Command:
        """The next command, in order and live."""
        self._offset += 1
        cause = Cause(1, 0, self._offset, 0, "", 1)
        made = Command(f"c{self._offset}", NODE, "suppress", cause, FOREVER_MS, "attack")
        return replace(made, **said)  # type: ignore[arg-type]

    async def policy(self, text: str = POLICY) -> None:
        """A policy is published and in force; the broker's time is 0 when this is called."""
        lease = self.agent.obey.lease
        before = lease.policy
        self._versions += 1
        record = PolicyRecord("default", self._versions, "", text)
        self.agent._law.hear_policy(b"default", record)
        await self.until(lambda: lease.policy not in (None, before), "a policy")
        await self.until(lambda: (lease.local_milli or 0) >= HALF_MILLI, "the local law")
        lease.clock.acknowledged(0, self.agent.mono_us())

    async def say(self, **said: object) -> list[tuple[str, str]]:
        """Say one to the hands; what they answer."""
        acks = await self.agent.obey.command(self.command(**said))
        assert not self.life.done(), self.life
        return [(ack.outcome, ack.reason) for ack in acks]


@asynccontextmanager
async def besieged(groups: Groups, source: Discovery, state: Path) -> AsyncIterator[Besieged]:
    """The agent for the time of a test; it must live to the end and give everything back."""
    settings = Settings(NODE, NOBODY, "t.", state, period_ms=PERIOD_MS)
    agent = NodeAgent(settings, groups.layout, source, SystemClock())
    agent._timed.set()
    life = asyncio.create_task(agent.run())
    one = Besieged(agent, life)
    try:
        await one.policy()
        await one.until(lambda: quota_us(groups) == FLOOR_US, "best-effort work at its floor")
        yield one
        assert not life.done(), life
    finally:
        if not life.done():
            os.kill(os.getpid(), signal.SIGTERM)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait_for(life, 15)


def quota_us(groups: Groups, path: str | None = None) -> int:
    """The quota of a group, the best-effort root by default; -1: none."""
    cpu = groups.layout.hierarchy("cpu")
    assert cpu is not None
    directory = Path(cpu.mount, path or groups.be_root)
    v1 = directory / "cpu.cfs_quota_us"
    if v1.exists():
        return int(v1.read_text())
    quota = (directory / "cpu.max").read_text().split()[0]
    return -1 if quota == "max" else int(quota)


def make(groups: Groups, path: str, quota: int | None = None) -> None:
    """A group of any name, below the test's own; ``quota`` of 100 ms: as a tenant would set it."""
    for mount in groups.layout.mounts():
        at = os.open(mount, os.O_RDONLY)
        for part in path.split("/"):
            with contextlib.suppress(FileNotFoundError):  # v2: handed down step by step
                _put("cgroup.subtree_control", at, b"+cpu")
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, dir_fd=at)
            below = os.open(part, os.O_RDONLY, dir_fd=at)
            for file in ("cpuset.cpus", "cpuset.mems"):
                _copy(file, at, below)
            os.close(at)
            at = below
        if quota is not None:
            for file in ("cpu.cfs_quota_us", "cpu.max"):
                with contextlib.suppress(FileNotFoundError):
                    _put(file, at, str(quota).encode())
        os.close(at)


def _copy(file: str, above: int, below: int) -> None:
    """A new v1 cpuset takes no process until it has what its parent has."""
    try:
        descriptor = os.open(file, os.O_RDONLY, dir_fd=above)
    except FileNotFoundError:
        return
    value = os.read(descriptor, 4096).strip()
    os.close(descriptor)
    if value:
        with contextlib.suppress(OSError):
            _put(file, below, value)


def _put(file: str, directory: int, value: bytes) -> None:
    descriptor = os.open(file, os.O_WRONLY, dir_fd=directory)
    try:
        os.write(descriptor, value)
    finally:
        os.close(descriptor)


@contextmanager
def process(groups: Groups, path: str, code: str = "sys.stdin.read()") -> Iterator[int]:
    """Python code in a group, for the time of the block; it may be dead by then."""
    child = subprocess.Popen(
        [sys.executable, "-c", f"import os, signal, sys, time\nsys.stdin.readline()\n{code}"],
        stdin=subprocess.PIPE,
    )
    try:
        groups.enter(path, child.pid)
        assert child.stdin is not None
        child.stdin.write(b"go\n")
        child.stdin.flush()
        yield child.pid
    finally:
        child.kill()
        child.wait(10)
        if child.stdin is not None:
            child.stdin.close()


def ended(pid: int) -> bool:
    """Whether a child has died; it is reaped by its owner."""
    status = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2]
    return status[:1] == b"Z"


def snapshot(groups: Groups, path: str) -> dict[str, str]:
    """Every knob of a group and all under it, in every hierarchy; figures left out."""
    found: dict[str, str] = {}
    for mount in groups.layout.mounts():
        top = Path(mount, path)
        for file in sorted(top.rglob("*")):
            writable = (
                file.is_file() and file.stat().st_mode & 0o200 and file.stat().st_mode & 0o400
            )
            if writable and not any(word in file.name for word in _FIGURES):
                with contextlib.suppress(OSError, UnicodeDecodeError):
                    found[str(file)] = file.read_text()
    return found
