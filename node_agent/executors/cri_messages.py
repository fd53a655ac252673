"""The few messages of the container runtime interface (v1) that stopping a pod takes.

Field numbers are those of kubernetes/cri-api `pkg/apis/runtime/v1/api.proto`. Used by
`node_agent.executors.cri`.
"""

from __future__ import annotations

from node_agent.protocol_buffers import fields, message, number, text

UID_LABEL = "io.kubernetes.pod.uid"
SANDBOX_READY, CONTAINER_RUNNING = 0, 1


def list_sandboxes(uid: str) -> bytes:
    """ListPodSandboxRequest: those of one pod."""
    label = text(1, UID_LABEL) + text(2, uid)
    return message(1, message(3, label))  # filter { label_selector { key, value } }


def list_containers(sandbox: str) -> bytes:
    """ListContainersRequest: those of one sandbox."""
    return message(1, text(3, sandbox))  # filter { pod_sandbox_id }


def stop_container(container: str, timeout_s: int) -> bytes:
    """StopContainerRequest: asked to end, killed after ``timeout_s``."""
    return text(1, container) + number(2, timeout_s)


def stop_sandbox(sandbox: str) -> bytes:
    """StopPodSandboxRequest: all that is left of the pod ends at once."""
    return text(1, sandbox)


def ready_sandboxes(answer: bytes) -> list[str]:
    """Ids in a ListPodSandboxResponse that are ready."""
    return _ids(answer, state=3, wanted=SANDBOX_READY)


def running_containers(answer: bytes) -> list[str]:
    """Ids in a ListContainersResponse that are running."""
    return _ids(answer, state=6, wanted=CONTAINER_RUNNING)


def _ids(answer: bytes, state: int, wanted: int) -> list[str]:
    found: list[str] = []
    for place, item in fields(answer):
        if place == 1 and isinstance(item, bytes):
            said: dict[int, int | bytes] = dict(fields(item))
            identity = said.get(1)
            if isinstance(identity, bytes) and said.get(state, 0) == wanted:
                found.append(identity.decode())
    return found
