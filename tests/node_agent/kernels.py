"""Fixture kernels and the golden output of the whole collector over each.

Run as a program to write the golden files anew: ``python -m tests.node_agent.kernels``; read the
difference before it is committed.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from node_agent.cgroup.layout import Layout, detect
from node_agent.containers import UNSAID
from node_agent.discovery import Discovery
from node_agent.inventory_file import InventoryFile
from node_agent.kubelet.cpu_manager import CpuManagerState
from node_agent.sampler import Sampler
from tests.node_agent.kubelet.said import Said

KERNELS = Path(__file__).parent.parent / "fixtures" / "kernels"
ROOTS = {"v2-kind": ("system.slice/docker-*.scope",)}
SWEEPS = 60  # one round of all columns at 1 s


class StepClock:
    """A clock that a test sets; the wall clock is apart."""

    def __init__(self) -> None:
        self.us = 1_000_000
        self.wall = 1_700_000_000_000

    def mono_us(self) -> int:
        return self.us

    def wall_ms(self) -> int:
        return self.wall

    def step(self, ms: int) -> None:
        self.us += ms * 1000
        self.wall += ms


def names() -> list[str]:
    return sorted(path.name for path in KERNELS.iterdir() if path.is_dir())


def source_of(root: Path, layout: Layout) -> Discovery:
    """Groups, and what the tree holds of a kubelet's answer, its state and an inventory file."""
    kubelet, file = root / "kubelet.json", root / "inventory.yaml"
    said = Said()
    if kubelet.exists():
        said.say_raw(kubelet.read_bytes())
    return Discovery(
        "node-1",
        layout,
        first_rev=1,
        roots=ROOTS.get(root.name, ()),
        file=InventoryFile(str(file)) if file.exists() else None,
        kubelet=said if kubelet.exists() else None,
        cpu_manager=CpuManagerState(f"{root}/var/lib/kubelet/cpu_manager_state"),
    )


def collect(root: Path) -> dict[str, Any]:
    """All that the collector says of one tree: each column as last measured in a minute."""
    clock = StepClock()
    layout = detect(str(root))
    source = source_of(root, layout)
    sampler = Sampler(layout, source, "node-1", clock, boot="b" * 32)
    node_columns: dict[str, int | None] = {}
    pod_columns: dict[str, list[int | None]] = {}
    head: dict[str, Any] = {}
    for _ in range(SWEEPS):
        sample = asdict(sampler.sweep())
        node_columns |= sample.pop("node_columns")
        pod_columns |= sample.pop("pod_columns")
        head = sample
        clock.step(1000)
    census = sampler.census
    assert census is not None
    stats = sampler.stats
    found = {
        "kind": layout.kind,
        "versions": layout.versions(),
        "mounts": [mount.removeprefix(str(root)) for mount in layout.mounts()],
        "inventory": asdict(census.record),
        "groups": list(census.groups),
        "best_effort_root": census.be_root,
        "containers": {
            pod.fact.name: [_said(asdict(each)) for each in pod.containers]
            for pod in census.pods()
            if pod.containers
        },
        "refused": source.refused,
        "notes": source.joined.notes,
        "sample": head,
        "node_columns": node_columns,
        "pod_columns": pod_columns,
        "absences": dict(sorted(sampler.absences().items())),
        "errors": {name: s.last_error for name, s in stats.signals.items() if s.errors},
        "vanished": stats.vanished,
    }
    sampler.close()
    return found


def _said(facts: dict[str, Any]) -> dict[str, Any]:
    """Without what was not said."""
    inner = {key: _said(of) if isinstance(of, dict) else of for key, of in facts.items()}
    return {key: of for key, of in inner.items() if of not in (UNSAID, {}, (), "")}


def golden(name: str) -> Path:
    return KERNELS / f"{name}.golden.json"


def render(found: dict[str, Any]) -> str:
    return json.dumps(found, indent=1) + "\n"


if __name__ == "__main__":
    for each in names():
        golden(each).write_text(render(collect(KERNELS / each)))
