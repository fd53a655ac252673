"""The few messages of the container runtime interface (v1) that stopping a pod takes.

Protocol buffers by hand: five requests and two answers do not pay for a library of 4 MiB on each
node. `tests/node_agent/test_cri.py` reads and writes them with Google's. Field numbers are those of
kubernetes/cri-api `pkg/apis/runtime/v1/api.proto`. Used by `node_agent.executors.cri`.
"""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
UID_LABEL = "io.kubernetes.pod.uid"
SANDBOX_READY, CONTAINER_RUNNING = 0, 1
_CONTINUES, _LOW = 0x80, 0x7F
_MOST_BITS = 63


class BadMessage(ValueError):
    """Bytes that are no protocol buffer."""


def list_sandboxes(uid: str) -> bytes:
    """ListPodSandboxRequest: those of one pod."""
    label = _text(1, UID_LABEL) + _text(2, uid)
    return _bytes(1, _bytes(3, label))  # filter { label_selector { key, value } }


def list_containers(sandbox: str) -> bytes:
    """ListContainersRequest: those of one sandbox."""
    return _bytes(1, _text(3, sandbox))  # filter { pod_sandbox_id }


def stop_container(container: str, timeout_s: int) -> bytes:
    """StopContainerRequest: asked to end, killed after ``timeout_s``."""
    return _text(1, container) + _number(2, timeout_s)


def stop_sandbox(sandbox: str) -> bytes:
    """StopPodSandboxRequest: all that is left of the pod ends at once."""
    return _text(1, sandbox)


def ready_sandboxes(answer: bytes) -> list[str]:
    """Ids in a ListPodSandboxResponse that are ready."""
    return _ids(answer, state=3, wanted=SANDBOX_READY)


def running_containers(answer: bytes) -> list[str]:
    """Ids in a ListContainersResponse that are running."""
    return _ids(answer, state=6, wanted=CONTAINER_RUNNING)


def _ids(answer: bytes, state: int, wanted: int) -> list[str]:
    found: list[str] = []
    for number, item in fields(answer):
        if number == 1 and isinstance(item, bytes):
            said: dict[int, int | bytes] = dict(fields(item))
            identity = said.get(1)
            if isinstance(identity, bytes) and said.get(state, 0) == wanted:
                found.append(identity.decode())
    return found


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of each field; numbers as they are, everything else as bytes.

    Raises BadMessage for what is cut off or of an unknown kind.
    """
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if kind == LENGTH:
            size, at = _varint(data, at)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise BadMessage(f"field {number} has wire type {kind}")
        if at + size > len(data):
            raise BadMessage(f"field {number} is cut off")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > _MOST_BITS:
            raise BadMessage("a number is cut off")
        byte = data[at]
        value |= (byte & _LOW) << shift
        at, shift = at + 1, shift + 7
        if byte < _CONTINUES:
            return value, at


def _packed(value: int) -> bytes:
    parts = bytearray()
    while value > _LOW:
        parts.append(value & _LOW | _CONTINUES)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _bytes(number: int, data: bytes) -> bytes:
    return _packed(number << 3 | LENGTH) + _packed(len(data)) + data


def _text(number: int, text: str) -> bytes:
    return _bytes(number, text.encode())


def _number(number: int, value: int) -> bytes:
    """A number of 0 is not said."""
    return _packed(number << 3 | VARINT) + _packed(value) if value else b""
