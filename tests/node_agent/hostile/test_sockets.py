"""Whoever reaches the metrics port: silent connections cost no thread and no beat."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import threading
import time
from pathlib import Path

from node_agent import metrics
from node_agent.workbench.groups import Groups
from tests.node_agent.hostile.kit import besieged, from_file, write_inventory
from tests.support import patient

SILENT = 200


async def test_silent_connections_cost_the_agent_nothing(groups: Groups, tmp_path: Path) -> None:
    inventory = write_inventory(groups, tmp_path / "inventory.yaml")
    async with besieged(groups, from_file(groups, inventory), tmp_path / "state") as one:
        port = metrics.serve(one.agent, "127.0.0.1", 0)
        assert b"slackwater_node_samples" in await asyncio.to_thread(scrape, port)
        threads = threading.active_count()
        with contextlib.ExitStack() as held:
            for _ in range(SILENT):
                silent = held.enter_context(socket.socket())
                silent.setblocking(False)
                silent.connect_ex(("127.0.0.1", port))
            rude = held.enter_context(
                socket.create_connection(("127.0.0.1", port), timeout=patient(5))
            )
            rude.sendall(b"GET /" + b"x" * 100_000)
            await one.beats(20)
            assert threading.active_count() <= threads + 1
        assert b"slackwater_node_samples" in await asyncio.to_thread(scrape, port, 60.0)


def scrape(port: int, within_s: float = 10.0) -> bytes:
    """The metrics, as soon as somebody has time for us."""
    end = time.monotonic() + patient(within_s)
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patient(10))
        try:
            connection.request("GET", "/metrics")
            return connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            assert time.monotonic() < end, "no answer"
        finally:
            connection.close()
