"""Who else is on the machine: container runtimes, the kubelet, its CPU manager."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

from node_agent.check.finding import Asked, Finding, Question
from node_agent.kubelet.cpu_manager import CpuManagerState

SOCKETS = (
    "run/containerd/containerd.sock",
    "run/crio/crio.sock",
    "run/cri-dockerd.sock",
    "run/k3s/containerd/containerd.sock",
)
KUBELET_PORT = 10250
PATIENCE_S = 0.3


def runtime(asked: Asked) -> Iterator[Finding]:
    """A socket that answers: pods can be stopped with their grace period."""
    answering = [name for name in SOCKETS if _answers(Path(f"{asked.base}/{name}"))]
    found = ", ".join(f"/{name}" for name in answering) or "no socket answers"
    yield Finding(
        "container runtime",
        bool(answering),
        found,
        "stopping pods by CRI: they are killed by group",
    )


def kubelet(asked: Asked) -> Iterator[Finding]:
    """The port of this machine, and the folder."""
    there = asked.kubelet_dir.is_dir()
    try:
        socket.create_connection(("127.0.0.1", KUBELET_PORT), PATIENCE_S).close()
        found, good = f"answers at 127.0.0.1:{KUBELET_PORT}", True
    except OSError:
        found, good = "does not answer here", False
    folder = f"{asked.kubelet_dir}" if there else "no folder"
    yield Finding(
        "kubelet", good, f"{found}; {folder}", "names and requests of pods, unless a file says them"
    )


def cpu_manager(asked: Asked) -> Iterator[Finding]:
    """With the static policy CPU sets are the kubelet's."""
    path = asked.kubelet_dir / "cpu_manager_state"
    if not path.exists():
        return
    state = CpuManagerState(str(path))
    static = state.look().static
    found = state.error or ("static" if static else "none")
    yield Finding("CPU manager", not static and not state.error, found, "suppress.policy: cpuset")


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(PATIENCE_S)
        try:
            client.connect(str(path))
        except OSError:
            return False
    return True


QUESTIONS: tuple[Question, ...] = (runtime, kubelet, cpu_manager)
