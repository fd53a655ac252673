"""The one way to reach an API server: from a kubeconfig, or from inside the cluster.

`connect` is called by the command line and by tests. `Kube.api` is lightkube's typed client (wrap
its calls in `translated`); `Kube.get` and `Kube.stream` are what `mirror` needs besides.
"""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx2
import msgspec
import yaml
from lightkube import AsyncClient, KubeConfig
from lightkube.config import client_adapter
from lightkube.config.kubeconfig import SERVICE_ACCOUNT, SingleConfig
from lightkube.core.exceptions import ConfigError

from scheduler_bridge.kube.errors import refused, translated

AGENT = "slackwater-bridge"
TIMEOUT_S = 10.0
CONNECT_S = 1.0
"""For each of TCP and TLS: shorter than any lease, for who leads must be able to say so in time."""
SILENCE_S = 90.0
"""A watch with bookmarks says something every 75 s at the latest; longer is a dead connection."""
MOST_CONNECTIONS = 200
# A peer that vanished without a word is found out within 20 s, in a watch too.
KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 20_000),
)


class _Transport(httpx2.AsyncHTTPTransport):
    """One pool of connections for typed calls and streams; says who we are."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.headers["User-Agent"] = AGENT
        return await super().handle_async_request(request)


class Kube:
    """A connection to one API server; `async with`, or `close` it."""

    def __init__(self, config: SingleConfig, timeout_s: float = TIMEOUT_S) -> None:
        timeout = httpx2.Timeout(timeout_s, connect=CONNECT_S)
        if config.user is None:
            raise ValueError(f"context {config.context_name} has no user; name one in it")
        transport = _Transport(
            verify=client_adapter.verify_cluster(
                config.cluster, config.user, config.abs_file, trust_env=False
            ),
            trust_env=False,
            limits=httpx2.Limits(max_connections=MOST_CONNECTIONS, max_keepalive_connections=64),
            socket_options=KEEPALIVE,
        )
        self.api = AsyncClient(config, timeout=timeout, transport=transport, trust_env=False)
        parameters = client_adapter.ConnectionParams(
            timeout=timeout,
            transport=transport,  # type: ignore[arg-type]  # typed as the blocking one
            trust_env=False,
        )
        self._http = client_adapter.AsyncClient(config, parameters)
        self._stream_timeout = httpx2.Timeout(timeout_s, connect=CONNECT_S, read=SILENCE_S)
        self.server = config.cluster.server
        self.namespace = config.namespace

    async def get(self, path: str, params: Mapping[str, str]) -> bytes:
        """The body of an answer. Raises KubeError."""
        with translated(f"GET {path}"):
            answer = await self._http.get(path, params=dict(params))
            if answer.is_error:
                raise _error(f"GET {path}", answer.status_code, answer.content)
            return answer.content

    async def delete(self, path: str, options: Mapping[str, Any]) -> None:
        """With DeleteOptions, which lightkube's own call does not take. Raises KubeError."""
        with translated(f"DELETE {path}"):
            answer = await self._http.request("DELETE", path, json=dict(options))
            if answer.is_error:
                raise _error(f"DELETE {path}", answer.status_code, answer.content)

    async def stream(self, path: str, params: Mapping[str, str]) -> AsyncIterator[bytes]:
        """The lines of an answer that goes on. Raises KubeError, also after `SILENCE_S`."""
        with translated(f"watch {path}"):
            async with self._http.stream(
                "GET", path, params=dict(params), timeout=self._stream_timeout
            ) as answer:
                if answer.is_error:
                    raise _error(f"watch {path}", answer.status_code, await answer.aread())
                rest = b""
                # Not by text lines: those would also break at characters inside of strings.
                async for chunk in answer.aiter_bytes():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        yield line

    async def close(self) -> None:
        await self.api.close()
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def connect(
    kubeconfig: Path | None = None, context: str | None = None, timeout_s: float = TIMEOUT_S
) -> Kube:
    """Without a kubeconfig: in-cluster. Raises ValueError for what cannot work; asks nobody yet."""
    try:
        config = _config(kubeconfig, context)
        _check_files(config)
        return Kube(config, timeout_s)
    except (ConfigError, KeyError, TypeError, AttributeError, msgspec.MsgspecError) as error:
        where = f"kubeconfig {kubeconfig}" if kubeconfig else "in-cluster account"
        what = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{where}: {what}; give a valid --kubeconfig") from error
    except (yaml.YAMLError, OSError) as error:
        raise ValueError(f"kubeconfig {kubeconfig} or a file it names: {error}") from error


def _config(kubeconfig: Path | None, context: str | None) -> SingleConfig:
    if kubeconfig is not None:
        found = KubeConfig.from_file(kubeconfig).get(context)
    elif context is not None:
        raise ConfigError("--context needs --kubeconfig")
    elif "KUBERNETES_SERVICE_HOST" not in os.environ:
        raise ConfigError("this is no pod (KUBERNETES_SERVICE_HOST is not set)")
    else:
        found = KubeConfig.from_service_account(SERVICE_ACCOUNT).get()
    if found is None:
        raise ConfigError("no context")
    return found


def _check_files(config: SingleConfig) -> None:
    """Open what the kubeconfig names: the TLS library says of none which it missed. OSError."""
    cluster, user = config.cluster, config.user
    named = [(cluster.certificate_auth, cluster.certificate_auth_data)]
    if user is not None:
        named.append((user.client_cert, user.client_cert_data))
        named.append((user.client_key, user.client_key_data))
    for name, said in named:
        if name and not said:
            Path(config.abs_file(name)).open("rb").close()


class _Status(msgspec.Struct):
    message: str = ""
    reason: str = ""


def _error(doing: str, code: int, body: bytes) -> Any:
    try:
        said = msgspec.json.decode(body, type=_Status)
    except msgspec.MsgspecError:
        said = _Status(body[:200].decode(errors="replace"))
    return refused(doing, code, said.message, said.reason)
