"""The process that `tests.bench.extender` asks: the extender's answers over a made-up fleet.

Nodes, pods and reports go in by the functions that the service calls; reports keep coming at the
rate at which workers make them (every node once in ten seconds), so that answers compete with them.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Mapping

import msgspec
import uvloop

from scheduler_bridge.extender.answers import Answers
from scheduler_bridge.extender.bindings import Bindings
from scheduler_bridge.extender.pods import PodRow
from scheduler_bridge.extender.settings import ExtenderSettings
from scheduler_bridge.extender.wire import Binding
from scheduler_bridge.http import HttpServer, HttpSettings
from scheduler_bridge.metrics import EXTENDER_TABLE, HTTP_TABLE, Metrics
from schemas import codec
from schemas.records import Reservation
from tests.scheduler_bridge.extender.world import NOW_MS, World, reservation, row

PODS = 50
REPORT_S = 10.0
TURN_S = 0.1


class NoApi:
    """Nothing is bound in this bench."""

    async def bind(self, asked: Binding) -> None:
        raise AssertionError(asked)

    async def pod(self, namespace: str, name: str) -> PodRow | None:
        raise AssertionError(namespace, name)


def name_of(i: int) -> str:
    return f"node-{i:05}.example"


def report_of(i: int, turn: int) -> Reservation:
    """A report of all but the five newest pods, with usage that moves; each tenth node is hot."""
    used = {f"uid-{i}-{j}": (50 + (i * 7 + j + turn) % 100, 100 << 20) for j in range(PODS - 5)}
    system = 9000 if i % 10 == 0 else 500 + (i * 37 + turn * 11) % 2000
    return reservation(
        name_of(i), system, at_ms=NOW_MS, pods=used,
        rank_milli=(900, 1200, 1500, 2000), rank_bytes=(8 << 30, 9 << 30, 10 << 30, 11 << 30),
    )  # fmt: skip


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def stamped(body: bytes) -> bytes:
    """The record, made now."""
    return body.replace(str(NOW_MS).encode(), str(now_ms()).encode())


def filled(count: int) -> World:
    """``count`` nodes of `PODS` pods each, all reported once."""
    world, model = World(), row("model", asks={"cpu": "200m", "memory": "256Mi"})
    for i in range(count):
        world.join(name_of(i))
        for j in range(PODS):
            uid = f"uid-{i}-{j}"
            pod = msgspec.structs.replace(model, uid=uid, name=uid, node=name_of(i))
            world.fleet.put(pod, now_ms() - 60_000, seen=True)
        body = stamped(codec.encode(report_of(i, 0)))
        world.records.fold("reservations", name_of(i).encode(), body, now_ms())
    world.fleet.refresh()
    return world


async def report(world: World, raw: Mapping[int, list[bytes]]) -> None:
    """Go on reporting, evenly."""
    count, at, turn = len(raw), 0.0, 0
    while True:
        await asyncio.sleep(TURN_S)
        until = at + count * TURN_S / REPORT_S
        for i in range(int(at), int(until)):
            turn += 1
            bodies = raw[i % count]
            body = stamped(bodies[turn % len(bodies)])
            world.records.fold("reservations", name_of(i % count).encode(), body, now_ms())
        at = until
        world.fleet.refresh()


async def serve(count: int) -> None:
    world = filled(count)
    bodies = {i: [codec.encode(report_of(i, turn)) for turn in (1, 2)] for i in range(count)}
    settings = ExtenderSettings(brokers="none:1")
    bindings = Bindings(world.fleet, {}, NoApi(), now_ms, 900_000, 30_000)
    metrics = Metrics(HTTP_TABLE + EXTENDER_TABLE)
    answers = Answers(world.fleet, bindings, settings, metrics, lambda: "", now_ms)
    server = HttpServer(HttpSettings(), answers.routes, metrics, lambda: True, lambda: True)
    gc.collect()
    gc.freeze()
    port = await server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    try:
        await report(world, bodies)
    finally:
        await server.stop()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
