"""SLIs on a real broker: nonsense is dead-lettered, a breach stops new work on its node alone."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import orjson

from schemas import codec
from schemas.records import Capacity, PolicyRecord, Sli
from schemas.topics import full_name
from streams.dev_broker import DevBroker
from streams.worker import Worker
from tests.streams.fleet_kit import Fleet, fleet, read_all, until
from tests.streams.test_worker_rules import running, settings_of

POLICY = (
    "rollout: {stage: expand}\nreservation: {warm_ms: 0}\n"
    "slo_guard: {objectives: [{workload: shop/web, p99_us: 100000, rounds: 1}]}\n"
)
WITHIN_MS = 2_000


async def introduce(one: Fleet) -> None:
    """The policy, and online pods that belong to the service."""
    record = PolicyRecord("default", 2, "", POLICY)
    await one.send("policies", b"default", codec.encode(record), codec.JSON_HEADERS, 0)
    for node in one.nodes:
        plain = node.inventory()
        pods = tuple(
            replace(pod, workload="shop/web" if pod.qos == "LS" else "") for pod in plain.pods
        )
        said = codec.encode(replace(plain, pods=pods))
        await one.send("inventory", node.name.encode(), said, codec.JSON_HEADERS)


def nonsense(name: str) -> list[tuple[bytes, str]]:
    good = Sli("shop/web", name, 30_000, 0, 900_000, 1_000)
    future = int(time.time() * 1000) + 600_000
    cases = [
        (codec.encode(good)[:-9], "broken_json"),
        (codec.encode(replace(good, node="somebody-else")), "key_mismatch"),
        (codec.encode(replace(good, end_ms=future)), "future_clock"),
    ]
    absurd: list[dict[str, Any]] = [
        {"p99_us": -1}, {"errors": 2_000}, {"window_ms": 0}, {"p99_us": 1 << 60}, {"requests": -1},
    ]  # fmt: skip
    return cases + [(codec.encode(replace(good, **each)), "implausible") for each in absurd]


def new_work(worker: Worker) -> dict[str, bool]:
    """What was said last of each node, as the worker's states have it."""
    return {
        key.decode(): bool(engine.state.nodes["said_new"][seat.row] == 1)
        for engine in worker.engines.values()
        if engine.state is not None
        for key, seat in engine.state.seats.items()
    }


async def keep_sending(one: Fleet) -> None:
    while True:
        await one.round(500)
        await asyncio.sleep(0.5)


async def test_nonsense_is_dead_lettered_and_a_breach_stops_new_work(
    broker: DevBroker, prefix: str
) -> None:
    async with fleet(broker.bootstrap, prefix, partitions=2, nodes=3) as one:
        await introduce(one)
        worker = Worker(settings_of(one))
        bad = nonsense("node-0001")
        async with running(worker):
            sending = asyncio.create_task(keep_sending(one))
            try:
                await until(lambda: sum(new_work(worker).values()) == 3, 40, "new work is welcome")
                for value, _ in bad:
                    await one.send("slis", b"node-0001", value, codec.JSON_HEADERS)
                breach = Sli("shop/web", "node-0000", 30_000, 0, 900_000, 1_000)
                sent = await one.send(
                    "slis", b"node-0000", codec.encode(breach), codec.JSON_HEADERS
                )
                await until(lambda: not new_work(worker)["node-0000"], 20, "new work stops")
                for reason, count in Counter(reason for _, reason in bad).items():
                    counted = worker.metrics.value(
                        "dead_letters_total", topic="slis", reason=reason
                    )
                    assert counted == count, reason
                assert [new_work(worker)[name] for name in ("node-0001", "node-0002")] == [True] * 2
            finally:
                sending.cancel()
        topic = full_name(prefix, "capacity")
        told = [
            codec.decode(Capacity, record.value)
            for record in await read_all(one.bootstrap, topic, 2)
        ]
        stopped = next(said for said in told if said.reason == "slo")
        took_ms = stopped.cause.log_ms - sent.timestamp
        print(f"no new work {took_ms} ms after the report")
        assert (stopped.node, stopped.new_work) == ("node-0000", False)
        assert {said.node for said in told if said.reason == "slo"} == {"node-0000"}
        assert took_ms <= 2 * WITHIN_MS, "two seconds, and as much again on a machine that is busy"
        letters = [
            orjson.loads(record.value)
            for record in await read_all(one.bootstrap, full_name(prefix, "dead-letters"), 1)
        ]
        assert Counter(letter["reason"] for letter in letters if letter["topic"] == "slis") == (
            Counter(reason for _, reason in bad)
        )
