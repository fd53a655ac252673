"""The container runtime (containerd, CRI-O): asked to stop one pod, over its socket.

`node_agent.evictions` starts `stop` and looks after the pod's group itself, so an answer that never
comes delays nothing. `cri_channel` and the gRPC library behind it are loaded by the first call.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from node_agent.executors import cri_messages as messages
from node_agent.protocol_buffers import BadMessage

if TYPE_CHECKING:
    from node_agent.executors.cri_channel import Calls

SOCKETS = (
    Path("/run/containerd/containerd.sock"),
    Path("/run/crio/crio.sock"),
    Path("/run/cri-dockerd.sock"),
    Path("/run/k3s/containerd/containerd.sock"),
)
ANSWER_S = 2.0  # of a listing; a stop may take the pod's time beyond it

log = logging.getLogger(__name__)


class Runtime:
    """One container runtime, by its socket."""

    def __init__(self, socket: Path | None = None) -> None:
        """``socket`` None: the first of the usual ones that is there when it is asked for."""
        self._given = socket

    @property
    def socket(self) -> Path | None:
        """Where it listens now; None: there is none."""
        places = SOCKETS if self._given is None else (self._given,)
        return next((path for path in places if path.is_socket()), None)

    async def stop(self, uid: str, wait_ms: int) -> str:
        """Ask for the end of the pod's containers, then of the pod; "" or why that failed.

        Returns when the runtime says that all is stopped. A reason begins with ``cri:``.
        """
        socket = self.socket
        if socket is None:
            return "cri:no_socket"
        try:
            from node_agent.executors.cri_channel import CallFailed, Calls  # noqa: PLC0415
        except ImportError:
            log.warning("no grpclib here: install slackwater[node] to stop pods by the runtime")
            return "cri:no_grpclib"
        try:
            async with Calls(socket) as calls:
                return await _stop(calls, uid, -(-wait_ms // 1000))
        except (CallFailed, BadMessage) as error:
            log.warning("%s does not stop pod %s: %s", socket, uid, error)
            return f"cri:{error.code}" if isinstance(error, CallFailed) else "cri:bad_message"


async def _stop(calls: Calls, uid: str, wait_s: int) -> str:
    listed = await calls.ask("ListPodSandbox", messages.list_sandboxes(uid), ANSWER_S)
    sandboxes = messages.ready_sandboxes(listed)
    for sandbox in sandboxes:
        request = messages.list_containers(sandbox)
        listed = await calls.ask("ListContainers", request, ANSWER_S)
        stops = [
            calls.ask("StopContainer", messages.stop_container(each, wait_s), wait_s + ANSWER_S)
            for each in messages.running_containers(listed)
        ]
        await asyncio.gather(*stops)
        request = messages.stop_sandbox(sandbox)
        await calls.ask("StopPodSandbox", request, wait_s + ANSWER_S)
    return "" if sandboxes else "cri:unknown_pod"
