"""The groups, the work and the agent of one drill; made by `steps`, always taken away again."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from node_agent.actuators import cpu_quota
from node_agent.actuators.subtree import BE_ROOT, Subtree
from node_agent.cgroup.layout import Layout
from node_agent.discovery import Discovery
from node_agent.drill import place
from node_agent.inventory_file import InventoryFile
from node_agent.local_law import PolicyShelf
from node_agent.loop import NodeAgent
from node_agent.sampler import SystemClock
from node_agent.settings import POLICIES_NAME, Settings
from node_agent.signals import cpu_usage
from node_agent.workbench.groups import SIDES, Groups
from node_agent.workbench.worker import Worker
from schemas.records import Ack, Cause, Command, PolicyRecord

NODE = "drill"
NOBODY = "127.0.0.1:9"  # no broker: the drill itself is the centre
PERIOD_MS = 200
FOREVER_MS = 1 << 50
POLL_S = 0.001
KNOBS = ("cpu.cfs_quota_us", "cpu.cfs_burst_us", "cpu.max", "cpu.idle", "cpu.shares", "cpu.weight")
MIB = 1 << 20
LIMIT_BYTES = 512 * MIB
MARGIN_BYTES, LOWER_BYTES = LIMIT_BYTES // 4, LIMIT_BYTES // 3
POLICY = f"""
name: default
rollout: {{stage: expand}}
suppress: {{threshold_percent: 100, floor_percent: 50, raise_permille: 1000}}
evict_memory: {{threshold_percent: 99, lower_percent: 98, limit_margin_bytes: {MARGIN_BYTES},
  limit_lower_bytes: {LOWER_BYTES}}}
"""


class DrillStopped(RuntimeError):
    """Something was not as a drill needs it; the message says what."""


@dataclass(slots=True)
class Stage:
    """Everything of one drill. ``agent`` works on ``groups`` alone."""

    groups: Groups
    agent: NodeAgent
    life: asyncio.Task[int]
    cpu: Subtree
    before: dict[str, str | None]  # the knobs of the best-effort root, ahead of the agent
    workers: list[Worker] = field(default_factory=list)
    ordered: int = 0

    def start(self, side: str, pod: str, **config: Any) -> Worker:
        """Work in a pod of the drill."""
        worker = Worker("node_agent.drill.work", f"{self.groups.name}/{side}/{pod}", config)
        self.workers.append(worker)
        return worker

    async def order(self, **said: Any) -> Ack:
        """One order of the centre, live and in order; the last of its acks."""
        self.ordered += 1
        cause = Cause(1, 0, self.ordered, 0, "drill", 1)
        made = Command(f"drill.{self.ordered}", NODE, "suppress", cause, FOREVER_MS, "drill")
        return (await self.agent.obey.command(replace(made, **said)))[-1]

    async def until(self, condition: Callable[[], bool], what: str, within_s: float) -> float:
        """Milliseconds until the condition held. Raises DrillStopped."""
        began = time.monotonic()
        while not condition():
            if self.life.done():
                raise DrillStopped("the agent was told to end")
            if time.monotonic() > began + within_s:
                raise DrillStopped(f"not within {within_s:.0f} s: {what}")
            await asyncio.sleep(POLL_S)
        return (time.monotonic() - began) * 1000

    def quota_milli(self) -> int:
        """What the kernel says of the best-effort root."""
        return cpu_quota.in_force(self.cpu)

    async def used_milli(self, over_s: float) -> int:
        """What best-effort work uses, over a while."""
        began, before = time.monotonic(), self._used_us()
        await asyncio.sleep(over_s)
        return round((self._used_us() - before) / 1000 / (time.monotonic() - began))

    def _used_us(self) -> int:
        found = self.groups.layout.place("cpu_usage", self.groups.be_root)
        if found is None:
            raise DrillStopped("no controller says how much CPU a group uses")
        parse = cpu_usage.parse_v1 if found.version == 1 else cpu_usage.parse_v2
        return parse(Path(found.path).read_bytes())[0] or 0

    def memory_file(self, name: str, group: str) -> Path | None:
        """A file of the memory controller by its name in the table; None: not here."""
        found = self.groups.layout.place(name, group)
        return Path(found.path) if found is not None and Path(found.path).exists() else None

    def limit_memory(self, group: str, most_bytes: int) -> bool:
        """Bound a group of the drill; False where there is no memory controller."""
        path = self.memory_file("memory_limit", group)
        if path is None:
            return False
        path.write_text(str(most_bytes), "ascii")
        return True

    async def end(self) -> int:
        """End the agent as an operator does; its exit code. All is given back then."""
        if not self.life.done():
            os.kill(os.getpid(), signal.SIGTERM)
        return await self.life


@asynccontextmanager
async def staged(layout: Layout, under: str | None) -> AsyncIterator[Stage]:
    """Groups made, agent at work; gone again at the end, whatever happens in the block."""
    groups = Groups(place.name(os.getpid(), under), layout)
    home = place.folder(os.getpid())
    home.mkdir(mode=0o700)  # raises for a folder of somebody else's
    stage: Stage | None = None
    try:
        with groups:
            for side in SIDES:
                for pod in place.PODS[side]:
                    groups.pod(side, pod)
            stage = await _begin(groups, home)
            try:
                yield stage
            finally:
                await stage.end()
                for worker in stage.workers:
                    worker.stop()
                stage.cpu.close()
    finally:
        shutil.rmtree(home, ignore_errors=True)


async def _begin(groups: Groups, home: Path) -> Stage:
    inventory = home / "inventory.yaml"
    inventory.write_text(_inventory(groups), "utf-8")
    file = InventoryFile(str(inventory))
    source = Discovery(NODE, groups.layout, first_rev=1, kubernetes=False, file=file)
    settings = Settings(NODE, NOBODY, "drill.", home / "state", period_ms=PERIOD_MS)
    cpu = groups.layout.hierarchy("cpu")
    if cpu is None:
        raise DrillStopped("no cpu controller is mounted: see `slackwater node check`")
    tree = Subtree(cpu.mount, cpu.version, groups.be_root)
    before = knobs(tree)
    settings.state_dir.mkdir(mode=0o700)
    shelf = PolicyShelf(settings.state_dir / POLICIES_NAME)
    shelf.keep(b"default", PolicyRecord("default", 1, "", POLICY))
    agent = NodeAgent(settings, groups.layout, source, SystemClock())
    agent.obey.lease.clock.acknowledged(0, agent.mono_us())  # the drill's broker begins at 0
    life = asyncio.create_task(agent.run(), name="agent")
    stage = Stage(groups, agent, life, tree, before)
    await stage.until(lambda: agent.obey.lease.policy is not None, "the agent's policy", 10)
    return stage


def knobs(cpu: Subtree) -> dict[str, str | None]:
    """What suppression turns at the best-effort root, as text; None: no such file."""
    return {name: cpu.read(BE_ROOT, name) for name in KNOBS}


def _inventory(groups: Groups) -> str:
    lines = [f"best_effort_root: {groups.be_root}", "pods:"]
    for side in SIDES:
        for pod in place.PODS[side]:
            qos = "LS" if side == "online" else "BE"
            lines.append(f"  - {{uid: {pod}, qos: {qos}, cgroup: {groups.name}/{side}/{pod}}}")
    return "\n".join(lines) + "\n"
