"""Stopping a pod by the container runtime: our client against another maker's gRPC server.

The server is grpcio's, on a unix socket; it reads requests and writes answers with Google's
protobuf, from a description of the interface that stands here and nowhere else.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from node_agent import protocol_buffers
from node_agent.executors import cri_messages as messages
from node_agent.executors.cri import Runtime
from node_agent.protocol_buffers import BadMessage

STRING, INT64, ENUM, MESSAGE, UINT64 = 9, 3, 14, 11, 4
# Message -> field -> (number, type or message, repeated); kubernetes/cri-api, runtime/v1.
SHAPES: dict[str, dict[str, tuple[int, int | str, bool]]] = {
    "LabelsEntry": {"key": (1, STRING, False), "value": (2, STRING, False)},
    "StateValue": {"state": (1, ENUM, False)},
    "PodSandboxFilter": {
        "id": (1, STRING, False), "state": (2, "StateValue", False),
        "label_selector": (3, "LabelsEntry", True),
    },
    "ListPodSandboxRequest": {"filter": (1, "PodSandboxFilter", False)},
    "PodSandboxMetadata": {
        "name": (1, STRING, False), "uid": (2, STRING, False), "namespace": (3, STRING, False),
        "attempt": (4, UINT64, False),
    },
    "PodSandbox": {
        "id": (1, STRING, False), "metadata": (2, "PodSandboxMetadata", False),
        "state": (3, ENUM, False), "created_at": (4, INT64, False),
        "labels": (5, "LabelsEntry", True), "annotations": (6, "LabelsEntry", True),
        "runtime_handler": (7, STRING, False),
    },
    "ListPodSandboxResponse": {"items": (1, "PodSandbox", True)},
    "ContainerFilter": {
        "id": (1, STRING, False), "state": (2, "StateValue", False),
        "pod_sandbox_id": (3, STRING, False), "label_selector": (4, "LabelsEntry", True),
    },
    "ListContainersRequest": {"filter": (1, "ContainerFilter", False)},
    "ContainerMetadata": {"name": (1, STRING, False), "attempt": (2, UINT64, False)},
    "ImageSpec": {"image": (1, STRING, False)},
    "Container": {
        "id": (1, STRING, False), "pod_sandbox_id": (2, STRING, False),
        "metadata": (3, "ContainerMetadata", False), "image": (4, "ImageSpec", False),
        "image_ref": (5, STRING, False), "state": (6, ENUM, False),
        "created_at": (7, INT64, False), "labels": (8, "LabelsEntry", True),
    },
    "ListContainersResponse": {"containers": (1, "Container", True)},
    "StopContainerRequest": {"container_id": (1, STRING, False), "timeout": (2, INT64, False)},
    "StopContainerResponse": {},
    "StopPodSandboxRequest": {"pod_sandbox_id": (1, STRING, False)},
    "StopPodSandboxResponse": {},
}  # fmt: skip


TYPES = {int(one): one for one in descriptor_pb2.FieldDescriptorProto.Type.values()}


def _described() -> dict[str, Any]:
    """Message classes by name."""
    file = descriptor_pb2.FileDescriptorProto(
        name="shape.proto", package="runtime.v1", syntax="proto3"
    )
    state = file.enum_type.add(name="State")
    for number in range(4):
        state.value.add(name=f"STATE_{number}", number=number)
    for name, fields in SHAPES.items():
        shape = file.message_type.add(name=name)
        for field_name, (number, kind, repeated) in fields.items():
            one = shape.field.add(name=field_name, number=number, label=3 if repeated else 1)
            if isinstance(kind, str):
                one.type_name = f".runtime.v1.{kind}"
            elif kind == ENUM:
                one.type_name = ".runtime.v1.State"
            one.type = TYPES[MESSAGE if isinstance(kind, str) else kind]
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"runtime.v1.{name}"))
        for name in SHAPES
    }


CLASSES = _described()


@dataclass(slots=True)
class FakeRuntime:
    """What a runtime holds, and what it was asked; a container takes ``end_s`` to stop."""

    pods: dict[str, list[tuple[str, int]]] = field(default_factory=dict)  # uid -> (sandbox, state)
    containers: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    calls: list[tuple[str, Any]] = field(default_factory=list)
    refuses: grpc.StatusCode | None = None
    end_s: float = 0.0
    stopped: Callable[[str], None] = lambda _sandbox: None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, method: str, request: Any) -> Any:
        with self.lock:
            self.calls.append((method, request))
        reply = CLASSES[f"{method}Response"]()
        if method == "ListPodSandbox":
            wanted = {one.key: one.value for one in request.filter.label_selector}
            for identity, state in self.pods.get(wanted.get(messages.UID_LABEL, ""), []):
                item = reply.items.add(id=identity, state=state, created_at=1 << 60)
                item.metadata.name = "pod"
                item.labels.add(key="app", value="batch")
        elif method == "ListContainers":
            for identity, state in self.containers.get(request.filter.pod_sandbox_id, []):
                item = reply.containers.add(id=identity, state=state, image_ref="sha256:0")
                item.pod_sandbox_id = request.filter.pod_sandbox_id
                item.labels.add(key="app", value="batch")
        elif method == "StopContainer":
            time.sleep(self.end_s)
        elif method == "StopPodSandbox":
            self.stopped(request.pod_sandbox_id)
        return reply

    def asked(self, method: str) -> list[Any]:
        return [request for name, request in self.calls if name == method]


@pytest.fixture
def fake() -> FakeRuntime:
    return FakeRuntime(
        {"uid-1": [("s-1", 0), ("s-0", 1)], "uid-2": [("s-2", 0)]},
        {"s-1": [("c-1", 1), ("c-2", 1), ("c-0", 2)], "s-2": [("c-9", 1)]},
    )


def serve(fake: FakeRuntime, socket: Path) -> grpc.Server:
    def handler(method: str) -> grpc.RpcMethodHandler[Any, Any]:
        def handle(request: Any, context: grpc.ServicerContext) -> Any:
            if fake.refuses is not None:
                context.abort(fake.refuses, "not now")
            return fake.answer(method, request)

        return grpc.unary_unary_rpc_method_handler(
            handle,
            request_deserializer=CLASSES[f"{method}Request"].FromString,
            response_serializer=CLASSES[f"{method}Response"].SerializeToString,
        )

    methods = ("ListPodSandbox", "ListContainers", "StopContainer", "StopPodSandbox")
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
    rows = {name: handler(name) for name in methods}
    service = grpc.method_handlers_generic_handler("runtime.v1.RuntimeService", rows)
    server.add_generic_rpc_handlers((service,))
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    return server


@pytest.fixture
def socket(fake: FakeRuntime, tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "cri.sock"
    server = serve(fake, path)
    yield path
    server.stop(grace=None).wait()


async def test_running_containers_of_the_pod_are_asked_to_end_then_the_pod_is(
    fake: FakeRuntime, socket: Path
) -> None:
    fake.end_s = 0.2
    began = time.monotonic()
    assert await Runtime(socket).stop("uid-1", 2_500) == ""
    assert 0.2 <= time.monotonic() - began < 2  # both at once
    stops = {(one.container_id, one.timeout) for one in fake.asked("StopContainer")}
    assert stops == {("c-1", 3), ("c-2", 3)}  # neither an ended one nor another pod's
    assert [one.pod_sandbox_id for one in fake.asked("StopPodSandbox")] == ["s-1"]
    assert [name for name, _ in fake.calls][-1] == "StopPodSandbox"


async def test_a_pod_that_the_runtime_does_not_know_is_said(socket: Path) -> None:
    assert await Runtime(socket).stop("uid-9", 0) == "cri:unknown_pod"


async def test_refusals_silence_and_absence_are_reasons(
    fake: FakeRuntime, socket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.refuses = grpc.StatusCode.UNAVAILABLE
    assert await Runtime(socket).stop("uid-1", 0) == "cri:UNAVAILABLE"
    fake.refuses = None
    fake.end_s = 1.5
    monkeypatch.setattr("node_agent.executors.cri.ANSWER_S", 0.3)
    assert await Runtime(socket).stop("uid-1", 0) == "cri:no_answer"
    assert await Runtime(tmp_path / "nothing.sock").stop("uid-1", 0) == "cri:no_socket"


async def test_something_else_behind_the_socket_is_no_runtime(tmp_path: Path) -> None:
    async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    path = tmp_path / "other.sock"
    server = await asyncio.start_unix_server(other, path)
    async with server:
        said = await Runtime(path).stop("uid-1", 0)
    assert said in ("cri:no_connection", "cri:no_answer")


def test_a_runtime_is_where_its_socket_is(
    socket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node_agent.executors.cri.SOCKETS", (tmp_path / "none", socket))
    assert Runtime().socket == socket
    assert Runtime(tmp_path / "none").socket is None


@given(uid=st.text(max_size=40), timeout_s=st.integers(0, (1 << 63) - 1))
def test_requests_read_as_google_reads_them(uid: str, timeout_s: int) -> None:
    listed = CLASSES["ListPodSandboxRequest"].FromString(messages.list_sandboxes(uid))
    (label,) = listed.filter.label_selector
    assert (label.key, label.value) == (messages.UID_LABEL, uid)
    stop = CLASSES["StopContainerRequest"].FromString(messages.stop_container(uid, timeout_s))
    assert (stop.container_id, stop.timeout) == (uid, timeout_s)
    containers = CLASSES["ListContainersRequest"].FromString(messages.list_containers(uid))
    assert containers.filter.pod_sandbox_id == uid
    assert CLASSES["StopPodSandboxRequest"].FromString(
        messages.stop_sandbox(uid)
    ).pod_sandbox_id == uid  # fmt: skip


@given(data=st.binary(max_size=60))
def test_bytes_that_are_no_message_are_refused_and_never_run_on(data: bytes) -> None:
    try:
        found = list(protocol_buffers.fields(data))
    except BadMessage:
        return
    assert len(found) <= len(data)
