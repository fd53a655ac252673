"""A container runtime's side of NRI on a unix socket, as containerd's adaptation has it.

It speaks with Google's protobuf from a description that stands here and nowhere else: a plugin
registers, is configured, is told what runs, and is then asked before each container.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

STRING, BYTES, INT32, INT64, UINT64, BOOL = 9, 12, 5, 3, 4, 8
Shape = dict[str, tuple[int, int | str, bool]]
SHAPES: dict[str, Shape] = {
    "Status": {"code": (1, INT32, False), "message": (2, STRING, False)},
    "KeyValue": {"key": (1, STRING, False), "value": (2, STRING, False)},
    "Request": {
        "service": (1, STRING, False), "method": (2, STRING, False), "payload": (3, BYTES, False),
        "timeout_nano": (4, INT64, False), "metadata": (5, "KeyValue", True),
    },
    "Response": {"status": (1, "Status", False), "payload": (2, BYTES, False)},
    "Empty": {},
    "RegisterPluginRequest": {"plugin_name": (1, STRING, False), "plugin_idx": (2, STRING, False)},
    "ConfigureRequest": {
        "config": (1, STRING, False), "runtime_name": (2, STRING, False),
        "runtime_version": (3, STRING, False), "registration_timeout": (4, INT64, False),
        "request_timeout": (5, INT64, False),
    },
    "ConfigureResponse": {"events": (2, INT32, False)},
    "SynchronizeRequest": {
        "pods": (1, "PodSandbox", True), "containers": (2, "Container", True),
        "more": (3, BOOL, False),
    },
    "SynchronizeResponse": {"more": (2, BOOL, False)},
    "OptionalInt64": {"value": (1, INT64, False)},
    "OptionalUInt64": {"value": (1, UINT64, False)},
    "LinuxMemory": {"limit": (1, "OptionalInt64", False), "swap": (3, "OptionalInt64", False)},
    "LinuxCPU": {
        "shares": (1, "OptionalUInt64", False), "quota": (2, "OptionalInt64", False),
        "period": (3, "OptionalUInt64", False), "cpus": (6, STRING, False),
    },
    "LinuxResources": {"memory": (1, "LinuxMemory", False), "cpu": (2, "LinuxCPU", False)},
    "LinuxPodSandbox": {"cgroup_parent": (3, STRING, False)},
    "PodSandbox": {
        "id": (1, STRING, False), "name": (2, STRING, False), "uid": (3, STRING, False),
        "namespace": (4, STRING, False), "labels": (5, "KeyValue", True),
        "annotations": (6, "KeyValue", True), "linux": (8, "LinuxPodSandbox", False),
    },
    "LinuxContainer": {"resources": (3, "LinuxResources", False)},
    "Container": {
        "id": (1, STRING, False), "pod_sandbox_id": (2, STRING, False), "name": (3, STRING, False),
        "args": (7, STRING, True), "linux": (11, "LinuxContainer", False),
    },
    "CreateContainerRequest": {
        "pod": (1, "PodSandbox", False), "container": (2, "Container", False),
    },
    "LinuxContainerAdjustment": {"resources": (2, "LinuxResources", False)},
    "ContainerAdjustment": {"linux": (6, "LinuxContainerAdjustment", False)},
    "CreateContainerResponse": {"adjust": (1, "ContainerAdjustment", False)},
}  # fmt: skip
PLUGIN, RUNTIME = 1, 2
CREATE_CONTAINER = 8


def _described() -> dict[str, Any]:
    """Message classes by name."""
    kinds = {int(one): one for one in descriptor_pb2.FieldDescriptorProto.Type.values()}
    file = descriptor_pb2.FileDescriptorProto(name="nri.proto", package="nri", syntax="proto3")
    for name, shape in SHAPES.items():
        described = file.message_type.add(name=name)
        for field_name, (number, kind, repeated) in shape.items():
            one = described.field.add(name=field_name, number=number, label=3 if repeated else 1)
            if isinstance(kind, str):
                one.type_name = f".nri.{kind}"
            one.type = kinds[11 if isinstance(kind, str) else kind]
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"nri.{name}"))
        for name in SHAPES
    }


CLASSES = _described()


class Runtime:
    """One plugin at a time; ``refuses`` its registration with a status."""

    def __init__(self) -> None:
        self.registered: list[Any] = []
        self.events = 0
        self.refuses = 0
        self.ready = asyncio.Event()
        self.cut = 1 << 20  # bytes of a piece at most: a frame may come in many
        self._streams = 0
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self.turned_away: asyncio.Queue[None] = asyncio.Queue()
        self.writers: list[asyncio.StreamWriter] = []

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A plugin has come."""
        self._reader, self._writer = reader, writer
        self.writers.append(writer)
        number, stream, kind, data = await self._frame()
        assert (number, kind, stream % 2) == (RUNTIME, 1, 1)
        request = CLASSES["Request"].FromString(data)
        assert (request.service, request.method) == (
            "nri.pkg.api.v1alpha1.Runtime", "RegisterPlugin",
        )  # fmt: skip
        self.registered.append(CLASSES["RegisterPluginRequest"].FromString(request.payload))
        answer = CLASSES["Response"]()
        if self.refuses:
            answer.status.code, answer.status.message = self.refuses, "no plugins here"
        self._send(RUNTIME, stream, 2, answer.SerializeToString())
        if self.refuses:
            self.turned_away.put_nowait(None)
            return
        said = CLASSES["ConfigureRequest"](
            runtime_name="containerd", registration_timeout=5000, request_timeout=2000
        )
        self.events = (await self.ask("Configure", said, "ConfigureResponse")).events
        for more in (True, False):
            listed = CLASSES["SynchronizeRequest"](more=more)
            listed.pods.add(id="p0", uid="old", name="old")
            listed.containers.add(id="c0", args=["x" * 5000])
            answered = await self.ask("Synchronize", listed, "SynchronizeResponse")
            assert answered.more == more
        self.ready.set()

    async def ask(self, method: str, request: Any, reply: str) -> Any:
        """One call of the plugin. Raises LookupError for a refusal."""
        self._streams += 2
        call = CLASSES["Request"](
            service="nri.pkg.api.v1alpha1.Plugin",
            method=method,
            payload=request.SerializeToString(),
            timeout_nano=2 * 10**9,
        )
        call.metadata.add(key="traceparent", value="00")
        self._send(PLUGIN, self._streams - 1, 1, call.SerializeToString())
        number, stream, kind, data = await self._frame()
        assert (number, stream, kind) == (PLUGIN, self._streams - 1, 2)
        answer = CLASSES["Response"].FromString(data)
        if answer.status.code:
            raise LookupError(answer.status.message)
        return CLASSES[reply].FromString(answer.payload)

    async def create(self, uid: str, name: str, parent: str = "", **said: Any) -> Any:
        """The adjustment of a container: LinuxResources. ``said``: annotations, quota, limit."""
        request = CLASSES["CreateContainerRequest"]()
        request.pod.id, request.pod.uid, request.pod.name = "sandbox", uid, "batch"
        request.pod.linux.cgroup_parent = parent
        for key, value in said.get("annotations", {}).items():
            request.pod.annotations.add(key=key, value=value)
        request.container.name = name
        cpu = request.container.linux.resources.cpu
        cpu.shares.value, cpu.period.value = 2, 100_000
        if "quota" in said:
            cpu.quota.value = said["quota"]
        if "limit" in said:
            request.container.linux.resources.memory.limit.value = said["limit"]
        answer = await self.ask("CreateContainer", request, "CreateContainerResponse")
        return answer.adjust.linux.resources

    def say(self, raw: bytes) -> None:
        """Anything."""
        assert self._writer is not None
        self._writer.write(raw)

    def hang_up(self) -> None:
        assert self._writer is not None
        self._writer.close()

    def _send(self, number: int, stream: int, kind: int, data: bytes) -> None:
        frame = struct.pack(">IIBB", len(data), stream, kind, 0) + data
        for at in range(0, len(frame), self.cut):
            piece = frame[at : at + self.cut]
            self.say(struct.pack(">II", number, len(piece)) + piece)

    async def _frame(self) -> tuple[int, int, int, bytes]:
        assert self._reader is not None
        number, size = struct.unpack(">II", await self._reader.readexactly(8))
        assert size <= 4096, "containerd's reader takes a piece in one buffer"
        piece = await self._reader.readexactly(size)
        length, stream, kind, _ = struct.unpack(">IIBB", piece[:10])
        assert len(piece) == 10 + length
        return number, stream, kind, piece[10:]


@asynccontextmanager
async def listening(path: Path) -> AsyncIterator[Runtime]:
    """A runtime at a socket."""
    runtime = Runtime()
    server = await asyncio.start_unix_server(runtime.connected, path)
    try:
        yield runtime
    finally:
        server.close()
        for writer in runtime.writers:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
