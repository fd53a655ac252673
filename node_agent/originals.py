"""Undo: what the knobs said before the agent's first write, kept in the journal, and given back.

`node_agent.obey` records and releases while it runs; `slackwater node release-all` releases what a
crashed agent left. A value is in the journal before the kernel hears of another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from node_agent.actuators import cpu_idle, cpu_quota
from node_agent.actuators.cpu_idle import Idle
from node_agent.actuators.cpu_quota import ActuatorFailed, GroupQuota
from node_agent.actuators.subtree import BE_ROOT, Parts, Subtree, safe_parts
from node_agent.cgroup.layout import Layout, LayoutError
from node_agent.journal import Journal

QUOTA, IDLE = "cpu_quota", "cpu_idle"
_ROOT_NAME = "."


@dataclass(frozen=True, slots=True)
class Trees:
    """The best-effort subtree in the hierarchies that are acted on; on pure v2 both are one."""

    cpu: Subtree
    unified: Subtree | None

    @property
    def root(self) -> str:
        """The best-effort root, from the hierarchies' root."""
        return self.cpu.root

    def close(self) -> None:
        """Give the descriptors back."""
        self.cpu.close()
        if self.unified is not None and self.unified is not self.cpu:
            self.unified.close()


def open_trees(layout: Layout, root: str) -> Trees:
    """The best-effort subtree on this machine. Raises LayoutError without a cpu controller."""
    cpu, unified = layout.hierarchy("cpu"), layout.hierarchy("unified")
    if cpu is None:
        raise LayoutError("no cpu controller is mounted; nothing can be suppressed here")
    tree = Subtree(cpu.mount, cpu.version, root)
    if unified is None or unified.mount == cpu.mount:
        return Trees(tree, tree if cpu.version == 2 else None)
    return Trees(tree, Subtree(unified.mount, 2, root))


def quotas(journal: Journal, root: str) -> dict[Parts, GroupQuota]:
    """Original bandwidths, by group."""
    found: dict[Parts, GroupQuota] = {}
    for name, values in journal.originals(root, QUOTA).items():
        group = BE_ROOT if name == _ROOT_NAME else safe_parts(name)
        found[group] = GroupQuota(
            group, values["quota_us"], values["period_us"], values.get("burst_us")
        )
    return found


def keep_quotas(journal: Journal, root: str, found: Sequence[GroupQuota]) -> None:
    """Record bandwidths as originals."""
    for each in found:
        values = {"quota_us": each.quota_us, "period_us": each.period_us}
        if each.burst_us is not None:
            values["burst_us"] = each.burst_us
        journal.original(root, QUOTA, "/".join(each.group) or _ROOT_NAME, values)


def forget_gone(journal: Journal, cpu: Subtree) -> None:
    """Drop the originals of groups that no longer exist, so that the state stays small."""
    for group in quotas(journal, cpu.root):
        if group != BE_ROOT and not cpu.exists(group):
            journal.forget(cpu.root, QUOTA, "/".join(group))


def idle(journal: Journal, root: str) -> Idle | None:
    """The original of `cpu.idle`, if it was ever written."""
    values = journal.originals(root, IDLE).get(_ROOT_NAME)
    return None if values is None else Idle(values["idle"], values["weight"])


def keep_idle(journal: Journal, root: str, found: Idle) -> None:
    """Record it as original."""
    journal.original(root, IDLE, _ROOT_NAME, {"idle": found.idle, "weight": found.weight})


def release(trees: Trees, journal: Journal) -> list[str]:
    """Give every original back; the reasons of what the kernel refused (kept in the journal)."""
    refused = []
    for knob, undo in ((QUOTA, _release_quota), (IDLE, _release_idle)):
        if not journal.originals(trees.root, knob):
            continue
        try:
            undo(trees.cpu, journal)
        except ActuatorFailed as error:
            refused.append(error.reason)
        else:
            journal.append({"kind": "released", "root": trees.root, "knob": knob})
    return refused


def _release_quota(cpu: Subtree, journal: Journal) -> None:
    cpu_quota.apply(cpu, cpu_quota.plan(cpu_quota.observe(cpu), quotas(journal, cpu.root), None))


def _release_idle(cpu: Subtree, journal: Journal) -> None:
    now, original = cpu_idle.observe(cpu), idle(journal, cpu.root)
    if now is not None and original is not None:
        cpu_idle.apply(cpu, cpu_idle.plan(cpu.version, now, original))
