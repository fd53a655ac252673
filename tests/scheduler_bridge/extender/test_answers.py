"""The forms of extender/v1, over HTTP: by names and by whole nodes, refusals, blindness."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

from scheduler_bridge.extender.answers import Answers
from scheduler_bridge.extender.bindings import Bindings
from scheduler_bridge.extender.settings import ExtenderSettings
from scheduler_bridge.http import HttpServer, HttpSettings
from scheduler_bridge.metrics import EXTENDER_TABLE, HTTP_TABLE, Metrics
from tests.scheduler_bridge.extender.test_bindings import Script
from tests.scheduler_bridge.extender.world import (
    CPU,
    NOW_MS,
    World,
    batch,
    capacity,
    document,
    node_document,
    reservation,
    row,
)

OVERLOADED = "node(s) whose CPU would be loaded beyond the bound"


@dataclass
class Asked:
    """A server over three nodes: cool, hot, and full of what others borrowed."""

    session: aiohttp.ClientSession
    metrics: Metrics
    blind: list[str] = field(default_factory=list)
    world: World = field(default_factory=World)

    async def ask(self, path: str, question: Any) -> tuple[int, Any]:
        async with self.session.post(path, json=question) as answer:
            return answer.status, await answer.json()


@asynccontextmanager
async def serving(**settings: Any) -> AsyncIterator[Asked]:
    world = World()
    world.join("cool", "hot", "full")
    world.hear(
        reservation("cool", 0), reservation("hot", CPU), reservation("full", 0),
        capacity("cool", 9_000), capacity("hot", 9_000), capacity("full", 10),
    )  # fmt: skip
    metrics, blind = Metrics(HTTP_TABLE + EXTENDER_TABLE), list[str]()
    bindings = Bindings(world.fleet, {}, Script(), lambda: NOW_MS, 900_000, 30_000)
    answers = Answers(
        world.fleet, bindings, ExtenderSettings("none:1", **settings), metrics,
        lambda: "".join(blind), lambda: NOW_MS,
    )  # fmt: skip
    server = HttpServer(HttpSettings(), answers.routes, metrics, lambda: True, lambda: True)
    port = await server.start()
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            yield Asked(session, metrics, blind, world)
    finally:
        await server.stop()


def question(*names: str) -> dict[str, Any]:
    pod = document("p", asks=batch(1_000))
    return {"Pod": pod, "Nodes": None, "NodeNames": list(names)}


async def test_names_are_answered_by_names() -> None:
    async with serving() as given:
        status, said = await given.ask("/filter", question("full", "cool", "hot"))
        assert status == 200
        assert said == {
            "NodeNames": ["cool"],
            "FailedNodes": {"full": "node(s) with too little left to lend"},
            "FailedAndUnresolvableNodes": {"hot": OVERLOADED},
        }
        status, said = await given.ask("/prioritize", question("full", "cool", "hot"))
        assert [one["Host"] for one in said] == ["full", "cool", "hot"]
        assert said[1]["Score"] == said[0]["Score"] > said[2]["Score"]
        verdicts = {
            one.labels["reason"]: one.value
            for family in given.metrics.registry.collect()
            for one in family.samples
            if one.name == "slackwater_bridge_extender_verdicts_total"
        }
        assert verdicts == {"fits": 1, "too_little": 1, "cpu_over": 1}


async def test_nodes_are_answered_by_nodes_as_they_came() -> None:
    whole = [node_document(name, notes={"any": "note"}) for name in ("hot", "cool")]
    asked = {"Pod": document("p"), "Nodes": {"metadata": {}, "items": whole}, "NodeNames": None}
    async with serving() as given:
        _, said = await given.ask("/filter", asked)
        assert said == {
            "Nodes": {"items": [whole[1]]}, "FailedAndUnresolvableNodes": {"hot": OVERLOADED},
        }  # fmt: skip
        _, said = await given.ask("/prioritize", asked)
        assert [one["Host"] for one in said] == ["hot", "cool"]


async def test_no_candidates_are_no_trouble() -> None:
    async with serving() as given:
        assert await given.ask("/filter", question()) == (200, {"NodeNames": []})
        assert await given.ask("/prioritize", question()) == (200, [])


async def test_the_blind_say_so_and_judge_nobody() -> None:
    async with serving() as given:
        given.blind.append("the extender is still reading the log; ask again")
        assert await given.ask("/filter", question("hot")) == (200, {"Error": given.blind[0]})
        assert await given.ask("/prioritize", question("hot")) == (503, {"error": given.blind[0]})
        asked = {"PodName": "p", "PodNamespace": "test", "PodUID": "u", "Node": "cool"}
        assert await given.ask("/bind", asked) == (200, {"Error": given.blind[0]})


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ([], "Expected `object`"),
        ({}, "missing required field `Pod`"),
        ({"Pod": document("p")}, "neither NodeNames nor Nodes"),
        ({"Pod": document("p", asks={"cpu": "much"}), "NodeNames": []}, "'much' is no quantity"),
        ({"Pod": {}, "NodeNames": []}, "without metadata or spec"),
        ({"Pod": document("p"), "Nodes": {"items": [{"metadata": {}}]}}, "`name`"),
    ],
)
async def test_bad_questions_are_told_what_is_wrong(asked: Any, said: str) -> None:
    async with serving() as given:
        status, answer = await given.ask("/filter", asked)
        assert status == 400
        assert said in answer["error"]


@pytest.mark.parametrize(
    "where",
    [
        {"PodName": "../../secrets/x"},
        {"PodNamespace": "test/.."},
        {"Node": "a?b"},
        {"PodName": ""},
        {"PodName": "a" * 254},
    ],
)
async def test_what_no_pod_or_node_can_be_called_is_no_part_of_a_path(where: Any) -> None:
    async with serving() as given:
        asked = {"PodName": "p", "PodNamespace": "test", "PodUID": "u", "Node": "cool", **where}
        status, answer = await given.ask("/bind", asked)
        assert status == 400
        assert "is no name of a pod, a namespace or a node" in answer["error"]


async def test_who_lacks_room_alone_waits_a_moment_for_news() -> None:
    async with serving(patience_ms=500) as given:
        standing = row("first", node="full", asks=batch(9_000))
        given.world.fleet.put(standing, NOW_MS, seen=True)
        given.world.hear(capacity("full", 9_500, offset=999_999))
        waiting = asyncio.create_task(given.ask("/filter", question("full")))
        # Nothing to lend is never awaited where something else fits.
        _, said = await given.ask("/filter", question("full", "cool"))
        assert said["NodeNames"] == ["cool"]
        given.world.fleet.drop(standing.uid)
        assert (await waiting)[1] == {"NodeNames": ["full"]}


async def test_who_is_not_to_bind_has_no_such_path() -> None:
    settings = ExtenderSettings("none:1", binds=False)
    fleet, metrics = World().fleet, Metrics(EXTENDER_TABLE)
    bindings = Bindings(fleet, {}, Script(), lambda: NOW_MS, 900_000, 30_000)
    answers = Answers(fleet, bindings, settings, metrics, lambda: "", lambda: NOW_MS)
    assert list(answers.routes) == ["/filter", "/prioritize"]


async def test_many_at_once_are_answered_each_its_own() -> None:
    async with serving() as given:
        names = ["cool", "hot", "full"]
        asked = [given.ask("/filter", question(names[i % 3])) for i in range(30)]
        for i, (_, said) in enumerate(await asyncio.gather(*asked)):
            assert (said["NodeNames"] == ["cool"]) is (names[i % 3] == "cool")
