"""Nodes that one side knows and the other does not are named, once both are known."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import cast

import orjson
import pytest

from scheduler_bridge.kube.client import Kube
from scheduler_bridge.ledger.amounts import NOTHING
from scheduler_bridge.ledger.annotations import Notes
from scheduler_bridge.ledger.kubernetes import KubernetesSystem
from scheduler_bridge.ledger.yarn import Answer, NodeManager
from scheduler_bridge.ledger.yarn_system import YarnSystem
from scheduler_bridge.loop import Bridge
from scheduler_bridge.settings import (
    CPU_NAME,
    MEMORY_NAME,
    MID_CPU_NAME,
    MID_MEMORY_NAME,
    Settings,
)
from scheduler_bridge.sinks.dry_run import DryRun
from scheduler_bridge.sinks.yarn import ResourceManager
from schemas import codec
from tests.scheduler_bridge.test_bridge_broker import capacity
from tests.support import patient


def test_nodes_that_the_cluster_does_not_have_are_named_as_they_come(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sink = DryRun(tmp_path / "record", lambda _line: None, CPU_NAME, MEMORY_NAME)
    bridge = Bridge(Settings("none:1"), sink)
    for i, node in enumerate(("ip-10-0-0-1", "ip-10-0-0-2"), 1):
        bridge.view.fold_capacity(node.encode(), codec.encode(capacity(node, i, 8000)), i)
    for names in ({"ip-10-0-0-1"}, {"ip-10-0-0-1"}, {"ip-10-0-0-1", "ip-10-0-0-2"}, set(), set()):
        bridge._tell_of_strangers(frozenset(names))
    sink.close()
    first, second = caplog.messages
    assert first.startswith("1 of 2 nodes have capacity and are none of this cluster's")
    assert first.endswith(": ip-10-0-0-1")
    assert second.endswith(": ip-10-0-0-1, ip-10-0-0-2")


def test_an_allocator_that_cannot_be_read_is_named_once_and_what_it_said_stands(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    names = (CPU_NAME, MEMORY_NAME, MID_CPU_NAME, MID_MEMORY_NAME)
    pods = KubernetesSystem(cast("Kube", None), "kubernetes", names, dict, (), settle_ms=0)
    monkeypatch.setattr(KubernetesSystem, "sure", True)

    def said(text: str) -> set[str]:
        pods.notes._objects["n1"] = Notes("1", "", text)
        return set(pods.held_on("n1"))

    good = one_allocation("slurm")
    assert said(good) == {"kubernetes", "slurm"}
    assert said("garbage") == said("garbage") == {"kubernetes"}
    (told,) = caplog.messages
    assert told.startswith("node n1: node.koordinator.sh/thirdPartyAllocations: ")
    assert told.endswith("what it said before stands")
    assert said(good) == {"kubernetes", "slurm"}
    said("garbage")
    assert len(caplog.messages) == 2, "anew, after it was well"


def one_allocation(name: str) -> str:
    said = {"name": name, "priority": "koord-batch", "resources": {CPU_NAME: "2000"}}
    return orjson.dumps({"allocations": [said]}).decode()


class Manager:
    """A ResourceManager with one NodeManager."""

    async def look(self) -> Answer:
        one = NodeManager("n1:8041", "n1", "RUNNING", NOTHING, NOTHING, 0)
        return Answer(1, (one,), 0)

    async def close(self) -> None:
        """Nothing is open."""


async def test_nobody_is_called_a_stranger_before_our_own_nodes_are_known(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "slackwater.bridge")
    known: list[str] = []
    may_tell: list[bool] = []
    yarn = YarnSystem(
        cast("ResourceManager", Manager()),
        "yarn",
        lambda: known,
        lambda: bool(may_tell),
        look_s=0.01,
    )

    async def looks(more: int) -> None:
        enough = yarn.looks + more
        async with asyncio.timeout(patient(10)):
            while yarn.looks < enough:  # noqa: ASYNC110 - it looks by itself
                await asyncio.sleep(0.005)

    task = asyncio.create_task(yarn.run())
    await looks(3)
    assert not caplog.messages
    may_tell.append(True)
    await looks(3)
    assert caplog.messages == ["YARN has NodeManagers that are none of our nodes: n1:8041"]
    known.append("n1")
    await looks(3)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert len(caplog.messages) == 1
