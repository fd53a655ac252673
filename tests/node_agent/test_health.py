"""What probes are told of a real agent: one that works, one without a broker, one that hangs."""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import Iterator
from pathlib import Path

import pytest

from node_agent import metrics
from node_agent.health import STILL_S, Health
from node_agent.loop import NodeAgent
from node_agent.sampler import SystemClock
from node_agent.settings import Settings
from node_agent.workbench.groups import Groups
from tests.node_agent.hostile.kit import NOBODY, besieged, from_file, write_inventory
from tests.node_agent.kernel import real_groups


@pytest.fixture
def groups() -> Iterator[Groups]:
    with real_groups() as made:
        yield made


async def test_over_http(groups: Groups, tmp_path: Path) -> None:
    inventory = write_inventory(groups, tmp_path / "inventory.yaml")
    async with besieged(groups, from_file(groups, inventory), tmp_path / "state") as one:
        port = metrics.serve(one.agent, "127.0.0.1", 0)
        assert await asyncio.to_thread(ask, port, "/healthz") == (200, "ok\n")
        assert await asyncio.to_thread(ask, port, "/readyz") == (503, "no broker\n")
        status, body = await asyncio.to_thread(ask, port, "/metrics")
        assert (status, "slackwater_node_samples_total" in body) == (200, True)
        assert (await asyncio.to_thread(ask, port, "/"))[0] == 404


def test_an_agent_that_hangs_is_not_alive(groups: Groups, tmp_path: Path) -> None:
    inventory = write_inventory(groups, tmp_path / "inventory.yaml")
    settings = Settings("n1", NOBODY, "t.", tmp_path / "state")
    agent = NodeAgent(settings, groups.layout, from_file(groups, inventory), SystemClock())
    now_s = 1000.0
    try:
        health = Health(agent, lambda: now_s)
        assert (health.alive(), health.ready()) == ("", "no sweep yet")
        now_s += STILL_S
        assert health.alive() == ""
        now_s += 1
        assert health.alive() == f"no sweep for {STILL_S + 1:.0f} s"
        agent._measure()
        assert (health.alive(), health.ready()) == ("", "no broker")
        agent.outbox.connected = True
        assert health.ready() == ""
    finally:
        agent.close()


def ask(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()
