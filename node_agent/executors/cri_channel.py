"""Calls to a container runtime over its socket: gRPC by grpclib, messages as plain bytes.

Imported by `node_agent.executors.cri` at its first call only: the library takes 3 MiB.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.const import Status
from grpclib.encoding.base import CodecBase
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError

SERVICE = "/runtime.v1.RuntimeService/"


class CallFailed(Exception):
    """``code``: the status that the runtime gave, ``no_answer`` or ``no_connection``."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code


class _Plain(CodecBase):
    """Messages that are bytes already."""

    __content_subtype__ = "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:  # noqa: ARG002
        encoded: bytes = message
        return encoded

    def decode(self, data: bytes, message_type: Any) -> bytes:  # noqa: ARG002
        return data


class Calls:
    """One connection."""

    def __init__(self, socket: Path) -> None:
        self._channel = Channel(path=str(socket), codec=_Plain())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._channel.close()

    async def ask(self, method: str, request: bytes, within_s: float) -> bytes:
        """The answer's bytes. Raises CallFailed."""
        call = UnaryUnaryMethod(self._channel, SERVICE + method, bytes, bytes)
        try:
            return await call(request, timeout=within_s)
        except GRPCError as error:
            if error.status is Status.DEADLINE_EXCEEDED:  # whose clock rang first is chance
                raise CallFailed("no_answer", f"{method}: {error.message}") from None
            raise CallFailed(error.status.name, f"{method}: {error.message}") from None
        except TimeoutError:
            raise CallFailed("no_answer", f"{method}: not within {within_s:.0f} s") from None
        except (ProtocolError, StreamTerminatedError, OSError) as error:
            raise CallFailed("no_connection", f"{method}: {error}") from error
