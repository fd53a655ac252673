"""A worker with keys on the real broker: forged samples, ticks and facts become dead letters."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
from typer.testing import CliRunner

from agents.log import LAW_VERSION
from schemas import codec, packed
from schemas.keys import Keys
from schemas.records import Tick
from schemas.signing import NODE_SAYS, Checker, NodeSigner, WorkerSigner
from schemas.topics import full_name
from streams import keyring
from streams.checker import check
from streams.dev_broker import DevBroker
from streams.replay.cli import app
from streams.worker import Worker
from tests.streams.fleet_kit import Fleet, read_all, until
from tests.streams.test_worker_rules import running, settings_of


class SignedFleet(Fleet):
    """Nodes that sign; ``honest`` switches it off for a forgery."""

    def __init__(self, bootstrap: str, prefix: str, held: Keys) -> None:
        super().__init__(bootstrap, prefix, partitions=2, nodes=4)
        self.held, self.honest = held, True

    async def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Any,
        partition: int | None = None,
    ) -> Any:
        if self.honest and topic in NODE_SAYS and key:
            signer = NodeSigner.of(self.held, key.decode())
            headers = signer.sign(full_name(self.prefix, topic), key, list(headers), value)
        return await super().send(topic, key, value, headers, partition)


async def test_s3_forgeries_are_dead_letters_and_the_rest_goes_on(
    broker: DevBroker, prefix: str, tmp_path: Path
) -> None:
    held = keyring.make(tmp_path / "keys")
    one = SignedFleet(broker.bootstrap, prefix, held)
    await one.start()
    try:
        victim, thief = one.nodes[0], one.nodes[1]
        key, home = victim.name.encode(), one.partition_of(victim.name)
        topic = full_name(prefix, "samples")
        worker = Worker(settings_of(one, keys=tmp_path / "keys"))
        want: dict[tuple[str, int], str] = {}

        async def forge(
            topic_name: str, reason: str, headers: Any, value: bytes, by: bytes | None = key
        ) -> None:
            one.honest = False
            sent = await one.send(topic_name, by, value, headers, home)
            one.honest = True
            want[topic_name, sent.offset] = reason

        async with running(worker):
            await until(lambda: worker.port > 0 and not worker.why_not_ready(), 20, "ready")
            await one.round()
            raw = packed.encode(victim.sample())
            stolen = NodeSigner.of(held, thief.name)
            await forge("samples", "unsigned", codec.PACKED_HEADERS, raw)
            await forge(
                "samples",
                "bad_signature",
                stolen.sign(topic, key, codec.PACKED_HEADERS, raw),
                raw,
            )
            tick = codec.encode(Tick(home, 1, LAW_VERSION, {}))
            await forge("samples", "unsigned", codec.TICK_HEADERS, tick, None)
            await forge(
                "samples",
                "unknown_key",
                stolen.sign(topic, None, codec.TICK_HEADERS, tick),
                tick,
                None,
            )
            nobody = codec.encode(type(victim)(victim.name, pods=0).inventory())
            await forge("inventory", "unsigned", codec.JSON_HEADERS, nobody)
            await one.round()
            await until(
                lambda: all(e.at >= one.acknowledged[p] for p, e in worker.engines.items()),
                15,
                "all folded",
            )
            dead = worker.metrics
            await until(
                lambda: dead.value("dead_letters_total", topic="inventory", reason="unsigned") == 1,
                15,
                "the forged inventory's dead letter",
            )
            state = worker.engines[home].state
            assert state is not None
            await until(  # the forged inventory had none; the honest one waits for its tick
                lambda: len(state.seats[key].uids) == victim.pods, 15, "the honest inventory"
            )
            assert all(engine.open for engine in worker.engines.values())
        letters = {
            (said["topic"], said["offset"]): said["reason"]
            for record in await read_all(broker.bootstrap, full_name(prefix, "dead-letters"), 1)
            for said in [orjson.loads(record.value)]
        }
        assert letters == want
        await assert_signed(one, WorkerSigner(held))
        checker = keyring.Folder(tmp_path / "keys").checker(prefix, accept_unsigned=False)
        verdict = await check(broker.bootstrap, prefix, believe=checker.check)
        assert verdict.ok, verdict.as_json()
        assert not (await check(broker.bootstrap, prefix)).ok  # who believes all folds otherwise
        where = ["--brokers", broker.bootstrap, "--prefix", prefix]
        for more in ([], ["--keys", str(tmp_path / "keys")]):  # refused as it was, or by the keys
            found = await asyncio.to_thread(CliRunner().invoke, app, [*where, *more])
            assert found.stdout.startswith("IDENTICAL: "), found.output
    finally:
        await one.stop()


async def assert_signed(one: SignedFleet, signer: WorkerSigner) -> None:
    """Every command, lease, tick and decision of the worker is signed; the signature repeats."""
    believe = Checker(one.prefix, one.held, lambda: None)
    signed = 0
    for name in ("commands", "decisions", "samples"):
        topic = full_name(one.prefix, name)
        for record in await read_all(one.bootstrap, topic, one.partitions):
            seal = dict(record.headers).get("slackwater-sig")
            if name == "samples" and (codec.encoding_of(record.headers) != codec.ENC_TICK):
                continue
            plain = [h for h in record.headers if h[0] != "slackwater-sig"]
            again = signer.sign(topic, record.key, plain, record.value)
            if seal is None or dict(again)["slackwater-sig"] != seal:
                assert name == "samples"  # the forged ticks
                assert orjson.loads(record.value)["side"] == {}
                continue
            believe.check(name, record.key, record.headers, record.value)
            signed += 1
    assert signed > 2
