"""The closed loop of one node by its own law: real load, real job, a real agent, no broker.

The quota is held against the rule of the law, worked out anew from what the kernel's counters say
beside the agent; so it holds on a busy machine too. Times are told, not judged.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from node_agent.workbench.greedy import Greedy
from node_agent.workbench.groups import Groups
from node_agent.workbench.online import Load
from tests.bench.lone_agent import Lone, until, usage_us
from tests.node_agent.kernel import real_groups

pytestmark = pytest.mark.kernel
CAPACITY_MILLI = 1000 * (os.cpu_count() or 1)
THRESHOLD_PERCENT = 80
FLOOR_MILLI = 50
STEP_MILLI = 600
TOLERANCE_MILLI = 150  # samples of a second each, and the witness's second is another one
LOOK_S = 1.0
SETTLED_S = 40.0
POLICY = f"""
name: default
rollout: {{stage: expand}}
suppress:
  threshold_percent: {THRESHOLD_PERCENT}
  floor_milli: {FLOOR_MILLI}
  raise_permille: 1000
reflex: {{enabled: false}}
evict_memory: {{enabled: false}}
"""


@dataclass(frozen=True, slots=True)
class Seen:
    """One look of the witness, in millicores over its second; ``quotas``: lowest and highest."""

    online: int
    best_effort: int
    system: int
    quotas: tuple[int, int]

    @property
    def rule(self) -> int:
        """What best-effort work may use when online work and the system go on like this."""
        usable = CAPACITY_MILLI * THRESHOLD_PERCENT // 100 - self.online - self.system
        return max(FLOOR_MILLI, usable)

    @property
    def follows(self) -> bool:
        return all(abs(quota - self.rule) <= TOLERANCE_MILLI for quota in self.quotas)


def look(agent: Lone) -> Seen:
    """Read the counters, and again a second later."""
    groups = agent.groups
    paths = (f"{groups.name}/online", groups.be_root, "")
    before, began = [usage_us(groups, path) for path in paths], time.monotonic()
    quotas = {agent.quota_milli()}
    while time.monotonic() - began < LOOK_S:
        quotas.add(agent.quota_milli())
        time.sleep(0.02)  # between two looks at the quota
    after, took_us = [usage_us(groups, path) for path in paths], (time.monotonic() - began) * 1e6
    online, best, machine = (
        round((b - a) * 1000 / took_us) for a, b in zip(before, after, strict=True)
    )
    return Seen(online, best, max(0, machine - online - best), (min(quotas), max(quotas)))


def settled(agent: Lone, also: Callable[[Seen], bool]) -> Seen:
    """The first look in which the rule holds and so does ``also``."""
    seen: list[Seen] = []

    def holds() -> bool:
        seen.append(look(agent))
        return seen[-1].follows and also(seen[-1])

    try:
        until(holds, "the rule", SETTLED_S)
    except TimeoutError as error:
        raise AssertionError(f"{error}: {seen[-5:]}") from error
    return seen[-1]


def test_the_quota_follows_the_online_load_up_and_down(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with real_groups() as groups:
        agent = _agent(groups, tmp_path)
        load = Load(groups.pod("online", "web"), 0)
        greedy = Greedy(groups.pod("besteffort", "job"), 2, tmp_path / "counts")
        try:
            with agent.running():
                calm = settled(agent, lambda seen: seen.online < STEP_MILLI // 4)
                work = greedy.work_done()
                load.set(STEP_MILLI)
                first = "untold: the machine was busy already"
                if calm.quotas[0] > FLOOR_MILLI + STEP_MILLI // 2:
                    cut_s = until(lambda: agent.quota_milli() < calm.quotas[0], "a cut", SETTLED_S)
                    first = f"{cut_s * 1000:.0f} ms"
                busy = settled(agent, lambda seen: seen.online > calm.online + STEP_MILLI // 4)
                assert busy.best_effort <= busy.quotas[1] + TOLERANCE_MILLI
                assert greedy.work_done() > work, "the job stands still"
                load.set(0)
                again = settled(agent, lambda seen: seen.online < STEP_MILLI // 4)
            assert agent.quota_milli() == -1, "given back at the end"
        finally:
            load.stop()
            greedy.stop()
        record_property("first cut after the step", first)
        for name, seen in (("calm", calm), ("busy", busy), ("calm again", again)):
            record_property(f"{name}, millicores", seen)


def _agent(groups: Groups, folder: Path) -> Lone:
    agent = Lone(groups, folder, POLICY)
    agent.inventory.write_text(f"""
best_effort_root: {groups.be_root}
pods:
  - {{uid: web, qos: LS, cgroup: {groups.name}/online/web}}
  - {{uid: job, qos: BE, cgroup: {groups.be_root}/job}}
""")
    return agent
