"""`slackwater record` on a real broker: what is on the topics is in the folder, through kills."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson

from schemas.topics import BY_NAME, full_name, partitions_of
from streams.dev_broker import DevBroker
from streams.recording import open_recording
from streams.recording.asking import finish_now
from streams.recording.manifest import Manifest
from streams.recording.store import is_locked
from streams.topics_admin import create
from tests.streams.fleet_kit import (
    ROOT,
    Fleet,
    WorkerProcess,
    delete_before,
    end,
    fleet,
    is_ready,
    metric,
    read_all,
    sending,
    until,
)
from tests.streams.stage_kit import environment

RECORD = """
import sys
from importlib.metadata import EntryPoint
from streams import cli
cli.entry_points = lambda **_: [EntryPoint("record", "streams.recording.cli:app", cli.GROUP)]
sys.exit(cli.run(["record", *sys.argv[1:]]))
"""
PARTITIONS = 2
Found = dict[tuple[str, int], list[tuple[object, ...]]]


def command(*arguments: str) -> list[str]:
    """`slackwater record ARGUMENTS`, installed or not."""
    return [sys.executable, "-c", RECORD, *arguments]


class RecorderProcess(WorkerProcess):
    """A `slackwater record` of its own process."""

    def __init__(self, fleet: Fleet, folder: Path, *options: str) -> None:
        self.folder = folder
        self.log = folder.with_suffix(".log")
        self._from = self.log.stat().st_size if self.log.exists() else 0
        self._file = self.log.open("ab")
        self.process = subprocess.Popen(
            command("--folder", str(folder), "--segment-bytes", "20KB", *options),
            env=environment(fleet.bootstrap, fleet.prefix),
            cwd=ROOT,
            stdout=self._file,
            stderr=self._file,
        )


async def on_topics(fleet: Fleet) -> Found:
    """Every record of every topic, as bytes, with offset and time."""
    found: Found = {}
    for topic in BY_NAME.values():
        count = partitions_of(topic, fleet.partitions)
        for r in await read_all(fleet.bootstrap, full_name(fleet.prefix, topic.name), count):
            where = (topic.name, r.partition)
            found.setdefault(where, []).append(
                (r.offset, r.timestamp, r.key, r.value, tuple(r.headers))
            )
    return found


def in_folder(folder: Path) -> tuple[Found, Manifest]:
    """The same of a recording, which must be sound."""
    with open_recording(folder) as recording:
        assert recording.verify(), recording.problems
        found: Found = {
            place: [
                (r.offset, r.timestamp, r.key, r.value, r.headers)
                for r in recording.records(*place)
            ]
            for place in recording.places
        }
        return found, recording.manifest


@asynccontextmanager
async def settled(fleet: Fleet) -> AsyncIterator[None]:
    """Nothing is written to the topics any more; the recorder may read to their ends."""
    before = -1
    while True:
        now = sum(map(len, (await on_topics(fleet)).values()))
        if now == before:
            break
        before = now
        await asyncio.sleep(0.3)
    yield


async def caught_up(recorder: RecorderProcess) -> bool:
    """Asked of its metrics; true of a recorder that has read something."""
    return (
        await metric(recorder, "record_records_total") > 0
        and await metric(recorder, "record_lag_records") == 0
    )


async def recorded_more(recorder: RecorderProcess, one: Fleet) -> None:
    """It follows, and a hundred samples have been sent meanwhile."""
    await until(lambda: is_ready(recorder), 40, "ready")
    enough = one.acknowledged[0] + 100
    await until(lambda: one.acknowledged[0] >= enough, 40, "samples")


async def test_all_topics_through_kills(broker: DevBroker, prefix: str, tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    async with fleet(broker.bootstrap, prefix, PARTITIONS, nodes=6) as one:
        with WorkerProcess(one.bootstrap, prefix, tmp_path / "worker.log") as worker:
            async with sending(one, every_s=0.05):
                for _ in range(2):
                    with RecorderProcess(one, folder) as recorder:
                        await recorded_more(recorder, one)
                        recorder.kill()
                await until(lambda: is_ready(worker), 40, "a worker at work")
            await end(worker)
        async with settled(one):
            with RecorderProcess(one, folder, "--json") as recorder:
                wanted = await on_topics(one)
                await until(lambda: caught_up(recorder), 40, "caught up")
                assert await asyncio.to_thread(finish_now, folder)
                found, manifest = in_folder(folder)
                assert found == wanted
                assert {"samples", "images", "decisions", "inventory", "policies"} <= {
                    topic for topic, _ in found
                }
                assert await end(recorder) == 0
    assert (manifest.gaps, manifest.partitions, manifest.prefix) == ((), PARTITIONS, prefix)
    assert manifest.law_versions
    assert len(manifest.policies) == 1
    assert not list(folder.rglob("*.partial"))
    last = orjson.loads(recorder.text.splitlines()[-1])
    assert (last["lag"]["samples"], last["ended"]) == (0, True)


async def test_a_second_recorder_and_a_strange_folder_are_refused(
    broker: DevBroker, prefix: str, tmp_path: Path
) -> None:
    folder = tmp_path / "recording"
    async with fleet(broker.bootstrap, prefix, PARTITIONS, nodes=1) as one:
        with RecorderProcess(one, folder) as first:
            await until(lambda: is_ready(first), 40, "ready")
            with RecorderProcess(one, folder) as second:
                await until(lambda: second.process.poll() is not None, 40, "refused")
                assert second.process.returncode == 1
                assert f"is being recorded into by process {first.process.pid}" in second.text
            assert first.process.poll() is None
            os.kill(first.process.pid, signal.SIGINT)
            await until(lambda: first.process.poll() is not None, 40, "ended")
            assert first.process.returncode == 0
        assert not is_locked(folder)
        await create(broker.bootstrap, f"{prefix}2.", PARTITIONS, 1, "name: default\n")
        one.prefix = f"{prefix}2."
        with RecorderProcess(one, folder) as other:
            await until(lambda: other.process.poll() is not None, 40, "refused")
            assert f"is a recording of '{prefix}'" in other.text


async def test_what_retention_took_is_noted(broker: DevBroker, prefix: str, tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    options = ("--topics", "samples,policies")
    async with fleet(broker.bootstrap, prefix, 1, nodes=4) as one:
        for _ in range(5):
            await one.round()
        with RecorderProcess(one, folder, *options) as recorder:
            await until(lambda: caught_up(recorder), 40, "caught up")
            assert await end(recorder) == 0
        for _ in range(5):
            await one.round()
        await delete_before(one, "samples", {0: 30})
        with RecorderProcess(one, folder, *options) as recorder:
            await until(lambda: caught_up(recorder), 40, "caught up")
            recorder.signal(signal.SIGSTOP)
            for _ in range(5):
                await one.round()
            await delete_before(one, "samples", {0: 55})
            recorder.signal(signal.SIGCONT)
            await until(lambda: _noticed(recorder), 40, "all that is left")
            assert await end(recorder) == 0
    found, manifest = in_folder(folder)
    assert found["samples", 0][-1][0] == 59
    missing = set(range(60)) - {r[0] for r in found["samples", 0]}
    assert missing == {offset for gap in manifest.gaps for offset in range(gap.first, gap.last + 1)}
    assert set(range(20, 30)) <= missing <= set(range(20, 55))
    assert {gap.why for gap in manifest.gaps} == {"retention was faster than the recorder"}
    asking = await asyncio.create_subprocess_exec(
        *command("status", str(folder)), stdout=subprocess.PIPE, cwd=ROOT,
        env=environment(broker.bootstrap, prefix),
    )  # fmt: skip
    told = (await asking.communicate())[0].decode()
    assert "retention was faster" in told
    assert "0 behind" in told


async def test_it_ends_in_order_while_the_broker_is_away(prefix: str, tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    with DevBroker() as own:
        async with fleet(own.bootstrap, prefix, 1, nodes=4) as one:
            await one.round()
        with RecorderProcess(one, folder, "--topics", "samples") as recorder:
            await until(lambda: caught_up(recorder), 40, "caught up")
            await asyncio.to_thread(own.stop)
            assert recorder.get("/healthz")[0] == 200
            assert await end(recorder) == 0
    found, manifest = in_folder(folder)
    assert {place: len(records) for place, records in found.items()} == {("samples", 0): 4}
    assert manifest.gaps == ()


async def _noticed(recorder: RecorderProcess) -> bool:
    return await metric(recorder, "record_gaps_total") > 1 and await caught_up(recorder)
