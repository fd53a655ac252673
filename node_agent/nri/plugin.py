"""The connection to a runtime that offers NRI: made, kept, made anew; one answer a container.

`node_agent.loop` runs it where `--nri` was given. A runtime waits two seconds for a plugin and goes
on without it, so whatever is wrong here never holds a container up for long; pods that were missed
are found by the knobs a moment later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from node_agent.isolation import BirthRules
from node_agent.nri import messages
from node_agent.nri.births import gift
from node_agent.nri.frames import (
    PLUGIN,
    REQUEST,
    RESPONSE,
    RUNTIME,
    BadFrame,
    Frame,
    Frames,
    piece,
    read_piece,
)
from node_agent.protocol_buffers import BadMessage

NAME, INDEX = "slackwater", "90"
"""Plugins are asked in the order of their index: what others limit is seen here."""
AGAIN_S = 10.0
REGISTER_S = 5.0
FIRST = 1  # streams of whoever asks have odd numbers
ENDS = (OSError, BadFrame, BadMessage, asyncio.IncompleteReadError, TimeoutError)

log = logging.getLogger(__name__)


class NotWanted(OSError):
    """The runtime refuses the plugin."""


class Plugin:
    """``rules`` is asked anew for each container; ``adjusted`` counts those that got something."""

    def __init__(self, socket: Path, rules: Callable[[], BirthRules]) -> None:
        self.connected = False
        self.adjusted = 0
        self._socket, self._rules = socket, rules
        self._said = ""

    async def run(self) -> None:
        """For ever: what ends a connection is said once, and it is tried again."""
        while True:
            try:
                await self._serve()
            except ENDS as error:
                why = str(error) or type(error).__name__
                self._tell(f"no NRI at {self._socket}: {why}")
            self.connected = False
            await asyncio.sleep(AGAIN_S)

    def _tell(self, text: str) -> None:
        if text != self._said:
            self._said = text
            log.warning("%s; pods are set when they are seen", text)

    async def _serve(self) -> None:
        """One connection, until it ends."""
        reader, writer = await asyncio.open_unix_connection(self._socket)
        try:
            request = messages.register(NAME, INDEX)
            said = messages.call(messages.RUNTIME_SERVICE, "RegisterPlugin", request)
            writer.write(piece(RUNTIME, Frame(FIRST, REQUEST, said)))
            connections = {PLUGIN: Frames(), RUNTIME: Frames()}
            async with asyncio.timeout(REGISTER_S) as patience:
                while True:
                    number, data = await read_piece(reader)
                    for frame in connections[number].feed(data) if number in connections else ():
                        if number == PLUGIN and frame.kind == REQUEST:
                            writer.write(piece(PLUGIN, self._answer(frame)))
                            await writer.drain()
                        elif number == RUNTIME and frame.kind == RESPONSE:
                            self._registered(frame)
                            patience.reschedule(None)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def _registered(self, frame: Frame) -> None:
        trouble = messages.trouble(frame.data)
        if trouble:
            raise NotWanted(f"plugin {INDEX}-{NAME} is refused, {trouble}")
        self.connected, self._said = True, ""
        log.info("NRI at %s: containers are set before they start", self._socket)

    def _born(self, request: bytes) -> bytes:
        """Whatever goes wrong with one container, it is made as it was asked for."""
        try:
            found = gift(self._rules(), messages.birth(request))
        except Exception:
            log.exception("a container is made as it was asked for")
            found = None
        self.adjusted += found is not None
        return messages.given(found)

    def _answer(self, frame: Frame) -> Frame:
        call = messages.called(frame.data)
        if call.service != messages.PLUGIN_SERVICE:
            said = messages.refusal(messages.UNIMPLEMENTED, f"no service {call.service}")
        elif call.method == "Configure":
            said = messages.answer(messages.configured())
        elif call.method == "Synchronize":
            said = messages.answer(messages.synchronized(call.payload))
        elif call.method == "CreateContainer":
            said = messages.answer(self._born(call.payload))
        elif call.method in ("Shutdown", "StateChange"):
            said = messages.answer(b"")
        else:
            said = messages.refusal(messages.UNIMPLEMENTED, f"no method {call.method}")
        return Frame(frame.stream, RESPONSE, said)
