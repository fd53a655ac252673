"""The checker has teeth: whatever a worker, a topic or a node must not do is caught."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from agents.log import Entry, Output, SampleEntry
from agents.state import PartitionState
from agents.step import step
from node_agent.answers import Answers
from node_agent.journal import NAME, Journal
from node_agent.lease import NodeLease
from schemas import codec
from schemas.records import Cause, Command
from schemas.topics import full_name
from streams import engine
from streams.checker import Verdict, check
from streams.dev_broker import DevBroker
from streams.settings import WorkerSettings
from streams.worker import Worker
from tests.streams.fleet_kit import Fleet, delete_before, fleet, read_all, sending, until
from tests.streams.test_worker_rules import running

Step = Callable[[PartitionState, Sequence[Entry]], list[Output]]
TAMPERED_AT = 40  # an offset of partition 0 by which all is known


async def work(one: Fleet) -> None:
    """A worker folds for a while, cuts images and ends in order."""
    worker = Worker(WorkerSettings(one.bootstrap, one.prefix, image_interval_s=1.0))
    async with running(worker), sending(one, 0.1):

        def enough() -> bool:
            return len(worker.engines) == one.partitions and all(
                e.at > 2 * TAMPERED_AT and (e.image_at or 0) > TAMPERED_AT
                for e in worker.engines.values()
            )

        await until(enough, 30, "folded well beyond, with images")


async def verdict_of(one: Fleet, journals: Sequence[Path] = ()) -> Verdict:
    return await check(one.bootstrap, one.prefix, journals)


def losing(state: PartitionState, batch: Sequence[Entry]) -> list[Output]:
    """A worker that does not fold one of the samples."""
    return step(state, [e for e in batch if not tampered(state, e)])


def doubling(state: PartitionState, batch: Sequence[Entry]) -> list[Output]:
    """A worker that forgets how far it was, once, and folds a sample again."""
    out: list[Output] = []
    for entry in batch:
        out += step(state, [entry])
        if tampered(state, entry):
            state.at -= 1
            out += step(state, [entry])
    return out


def tampered(state: PartitionState, entry: Entry) -> bool:
    """The first sample from there on."""
    first = getattr(state, "tampered", entry.offset)
    hit = state.partition == 0 and isinstance(entry, SampleEntry) and entry.offset >= TAMPERED_AT
    if hit:
        state.tampered = first  # type: ignore[attr-defined]
    return hit and first == entry.offset


@pytest.mark.parametrize("bug", [losing, doubling])
async def test_a_sample_lost_or_folded_twice_is_caught(
    broker: DevBroker, prefix: str, monkeypatch: pytest.MonkeyPatch, bug: Step
) -> None:
    async with fleet(broker.bootstrap, prefix) as one:
        with monkeypatch.context() as patched:
            patched.setattr(engine, "step", bug)
            await work(one)
        found = await verdict_of(one)
        assert not found.ok
        assert found.images_differing > 0, found.as_json()


async def test_what_is_said_otherwise_or_not_at_all_is_caught(
    broker: DevBroker, prefix: str
) -> None:
    async with fleet(broker.bootstrap, prefix) as one:
        await work(one)
        found = await verdict_of(one)
        assert found.ok, found.as_json()
        assert found.images >= 2
        assert found.samples == sum(node.seq for node in one.nodes)
        assert found.unimaged == 0
        name = full_name(prefix, "decisions")
        record = (await read_all(one.bootstrap, name, one.partitions))[-1]

        await again(one, record, record.value)
        found = await verdict_of(one)
        assert found.ok
        assert found.repeated == 1

        await again(one, record, changed(record.value, "outcome", ["other"]))
        found = await verdict_of(one)
        assert not found.ok
        assert (found.differing, found.phantom, found.missing) == (1, 0, 0)

        cause = {**orjson.loads(record.value)["cause"], "offset": 1}
        await again(one, record, changed(record.value, "cause", cause))
        assert (await verdict_of(one)).phantom == 1

        await delete_before(one, "decisions", {record.partition: 1})
        assert (await verdict_of(one)).missing == 1


async def again(one: Fleet, record: Any, value: bytes) -> None:
    await one.send("decisions", record.key, value, codec.JSON_HEADERS, record.partition)


def changed(value: bytes, field: str, to: Any) -> bytes:
    return orjson.dumps({**orjson.loads(value), field: to})


def command(number: int) -> Command:
    cause = Cause(1, 0, number, number, "", 1)
    return Command(f"c{number}", "node-0000", "suppress", cause, 10_000, "", allow_milli=1_000)


async def test_a_command_applied_twice_or_backwards_is_caught(
    broker: DevBroker, prefix: str, tmp_path: Path
) -> None:
    journal = Journal(tmp_path, "0" * 32)
    answers = Answers("1" * 32, journal, NodeLease("node-0000", 10), lambda: 0, dry_run=False)
    for number in (1, 2, 3):
        answers.outcome(command(number), "applied", "")
    answers.outcome(command(2), "refused", "stale_order")
    path = tmp_path / NAME
    async with fleet(broker.bootstrap, prefix) as one:
        answers.outcome(command(4), "started", "term")  # it takes effect here
        answers.outcome(command(5), "applied", "")
        answers.outcome(command(4), "applied", "")  # and is answered here
        found = await verdict_of(one, [path])
        assert found.ok, found.as_json()
        assert found.commands_applied == 5
        answers.outcome(command(5), "applied", "")
        found = await verdict_of(one, [path])
        assert (found.commands_twice, found.commands_backwards, found.ok) == (1, 0, False)
        answers.outcome(command(0), "applied", "")
        found = await verdict_of(one, [path])
        assert (found.commands_twice, found.commands_backwards, found.ok) == (1, 1, False)
    journal.close()
