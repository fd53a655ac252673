"""What stands in the API server's place may answer anything: it ends in an OSError that says so."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from lightkube.resources.core_v1 import Node

from scheduler_bridge.kube.client import AGENT, Kube, connect
from scheduler_bridge.kube.errors import (
    KubeBusy,
    KubeConflict,
    KubeError,
    KubeExpired,
    KubeMissing,
    KubeRefused,
    KubeUnreachable,
    translated,
)

HTML = b"<html>an idle proxy</html>"


def status(code: int, said: str = "so") -> bytes:
    text = f'{{"kind":"Status","code":{code},"message":"{said}","reason":"Because"}}'
    return answer(code, text.encode(), "application/json")


def answer(code: int, body: bytes, kind: str = "text/html") -> bytes:
    head = f"HTTP/1.1 {code} X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
    return f"{head}Content-Type: {kind}\r\n\r\n".encode() + body


@contextlib.asynccontextmanager
async def facing(tmp_path: Path, said: bytes) -> AsyncIterator[tuple[Kube, list[bytes]]]:
    """A connection to a server that always says this, and what it was asked."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(said)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    config = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    async with server, connect(path, timeout_s=0.5) as kube:
        yield kube, asked


async def get(kube: Kube) -> None:
    with translated("read a node"):
        await kube.api.get(Node, "n")


@pytest.mark.parametrize(
    ("said", "kind", "code"),
    [
        (status(401), KubeRefused, 401),
        (status(403), KubeRefused, 403),
        (status(404), KubeMissing, 404),
        (status(409), KubeConflict, 409),
        (status(410), KubeExpired, 410),
        (status(429), KubeBusy, 429),
        (status(503), KubeBusy, 503),
        (answer(502, HTML), KubeBusy, 502),
        (answer(404, HTML), KubeMissing, 404),
        (answer(200, HTML), KubeUnreachable, 0),
        (b"SSH-2.0-OpenSSH\r\n", KubeUnreachable, 0),
        (b"HTTP/1.1 500 X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", KubeError, None),
        (b"", KubeUnreachable, 0),
    ],
)
async def test_every_answer_is_an_error_of_ours(
    tmp_path: Path, said: bytes, kind: type[KubeError], code: int | None
) -> None:
    async with facing(tmp_path, said) as (kube, asked):
        with pytest.raises(kind, match="read a node: ") as error:
            await get(kube)
        assert isinstance(error.value, OSError)
        assert code is None or error.value.code == code
        assert AGENT.encode() in asked[0]
        if code != 0:
            with pytest.raises(KubeError, match="GET /x"):
                await kube.get("/x", {})


async def test_nobody_there_and_nobody_who_speaks(tmp_path: Path) -> None:
    async with facing(tmp_path, b"") as (kube, _):
        pass
    kube = connect(tmp_path / "config", timeout_s=0.5)
    with pytest.raises(KubeUnreachable, match="no answer"):
        await get(kube)
    with pytest.raises(KubeUnreachable, match="watch /x: no answer"):
        async for _line in kube.stream("/x", {}):
            pass
    await kube.close()
