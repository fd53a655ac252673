"""Rules 1, 2, 3, 6 and 9 on the real broker: images, order, seek and gate, outputs, versions."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import orjson
from aiokafka import AIOKafkaProducer

from agents import log as law
from schemas.topics import full_name
from streams import images
from streams.checker import Verdict, check
from streams.dev_broker import DevBroker
from streams.topics_admin import installation_of
from tests.streams.fleet_kit import (
    Fleet,
    WorkerProcess,
    committed,
    end,
    fleet,
    is_ready,
    log_ends,
    metric,
    reset_group,
    sending,
    until,
)


async def proven(one: Fleet) -> Verdict:
    """The checker's verdict, which must be good."""
    verdict = await check(one.bootstrap, one.prefix)
    assert verdict.ok, verdict.as_json()
    assert verdict.records >= sum(offset + 1 for offset in one.acknowledged.values()), "all there"
    assert verdict.cold == 0
    return verdict


def near(done: dict[int, int], ends: dict[int, int]) -> bool:
    """All but a tick that was under way when the worker was told to stop."""
    return all(0 <= ends[p] - done[p] <= 1 for p in ends) and done.keys() == ends.keys()


async def run_a_while(one: Fleet, worker: WorkerProcess, folded: int) -> None:
    """Until it is ready, has folded all that was sent and has cut an image of each partition."""
    async with sending(one):
        await until(lambda: is_ready(worker), 20, "ready")

        async def enough() -> bool:
            cut = [await metric(worker, "images_total", partition=str(p)) for p in range(2)]
            return all(cut) and await metric(worker, "folded_total") >= folded

        await until(enough, 20, f"{folded} records folded and images cut")

    async def all_folded() -> bool:
        ends = (await log_ends(one)).items()
        return all([await metric(worker, "at_offset", partition=str(p)) + 2 > e for p, e in ends])

    await until(all_folded, 20, "nothing left but a tick")


async def test_rule1_recovery_goes_on_after_the_image(
    broker: DevBroker, prefix: str, tmp_path: Path
) -> None:
    async with fleet(broker.bootstrap, prefix) as one:
        with WorkerProcess(broker.bootstrap, prefix, tmp_path / "a") as worker:
            await run_a_while(one, worker, 100)
            assert await end(worker) == 0
        ends = await log_ends(one)
        done = await committed(one)
        assert near(done, ends), "final images were cut and committed"
        with WorkerProcess(broker.bootstrap, prefix, tmp_path / "b") as worker:
            await until(lambda: is_ready(worker), 20, "ready again")
            await one.round()
            await until(lambda: is_ready(worker), 20, "ready")

            async def caught_up() -> bool:
                return await metric(worker, "folded_total") >= len(one.nodes)

            await until(caught_up, 10, "the new records folded")
            assert await metric(worker, "skipped_total") == 0
            assert await metric(worker, "cold_starts_total") == 0
            for partition, offset in done.items():
                assert f"partition {partition}: image at {offset - 1}" in worker.text
            assert await end(worker) == 0
        after = await log_ends(one)
        assert sum(after.values()) - sum(ends.values()) >= len(one.nodes)
        verdict = await proven(one)
        assert verdict.repeated == 0
        assert verdict.images >= 4


async def test_rule1_half_and_foreign_images_are_passed_over(
    broker: DevBroker, prefix: str, tmp_path: Path
) -> None:
    async with fleet(broker.bootstrap, prefix) as one:
        with WorkerProcess(broker.bootstrap, prefix, tmp_path / "a") as worker:
            await run_a_while(one, worker, 60)
            assert await end(worker) == 0
        ends, done = await log_ends(one), await committed(one)
        # Later records exist, so that an image beyond the last one would be believed.
        await one.round()
        await write_bad_images(one, ends)
        with WorkerProcess(broker.bootstrap, prefix, tmp_path / "b") as worker:
            await until(lambda: is_ready(worker), 20, "ready")
            assert await metric(worker, "images_refused_total", reason="broken_chunk") >= 2
            assert await metric(worker, "images_refused_total", reason="half_or_foreign") >= 4
            for partition, offset in done.items():
                assert f"partition {partition}: image at {offset - 1}" in worker.text
            assert await end(worker) == 0
        await proven(one)


async def write_bad_images(one: Fleet, ends: dict[int, int]) -> None:
    """For each partition: a half one, one of another law, one with a broken chunk."""
    state = {"partition": 0, "incarnation": 0}
    noise = np.random.default_rng(1).integers(0, 255, 2_000_000, dtype=np.uint8)
    producer = AIOKafkaProducer(
        bootstrap_servers=one.bootstrap, max_request_size=2 << 20, max_batch_size=2 << 20
    )
    await producer.start()
    try:
        for partition, offset in ends.items():
            incarnation = await incarnation_of(one)
            chunks = images.pack("half", offset, incarnation, state, {"noise": noise})
            assert len(chunks) > 1
            other = law.LAW_VERSION + 1
            foreign = images.pack("foreign", offset, incarnation, state, {}, law_version=other)
            broken = images.pack("broken", offset, incarnation, state, {"noise": noise[:100]})
            broken = [broken[0][:-1] + bytes([broken[0][-1] ^ 1])]
            for raw in [chunks[0], *foreign, *broken]:
                await producer.send_and_wait(
                    full_name(one.prefix, "images"), raw, partition=partition
                )
    finally:
        await producer.stop()


async def incarnation_of(one: Fleet) -> int:
    found = await installation_of(one.bootstrap, one.prefix)
    assert found is not None
    return found.incarnation


async def test_rule2_a_zombie_says_the_same_bytes(
    broker: DevBroker, prefix: str, tmp_path: Path
) -> None:
    async with fleet(broker.bootstrap, prefix) as one:
        with WorkerProcess(broker.bootstrap, prefix, tmp_path / "a") as zombie:
            async with sending(one, 0.1):
                await until(lambda: is_ready(zombie), 20, "ready")
                zombie.signal(signal.SIGSTOP)
                with WorkerProcess(broker.bootstrap, prefix, tmp_path / "b") as heir:
                    await until(lambda: is_ready(heir), 30, "the heir has taken over")
                    assert await metric(heir, "gate_open") == 2
                    zombie.signal(signal.SIGCONT)

                    async def back() -> bool:
                        both = await metric(zombie, "gate_open") + await metric(heir, "gate_open")
                        return (
                            both == 2
                            and await is_ready(heir)
                            and await metric(heir, "folded_total") > 50
                        )

                    await until(back, 25, "one partition each")
                    assert await end(heir) == 0
                assert await end(zombie) == 0
        await proven(one)


async def test_rule3_committed_offsets_decide_nothing(
    broker: DevBroker, prefix: str, tmp_path: Path
) -> None:
    async with fleet(broker.bootstrap, prefix) as one:
        with WorkerProcess(broker.bootstrap, prefix, tmp_path / "a") as worker:
            await run_a_while(one, worker, 60)
            assert await end(worker) == 0
        for name in ("earliest", "latest"):
            ends = await log_ends(one)
            await one.round()
            await one.round()
            later = await log_ends(one)
            await reset_group(one, dict.fromkeys(ends, 0) if name == "earliest" else later)
            with WorkerProcess(broker.bootstrap, prefix, tmp_path / name) as worker:

                async def folded(worker: WorkerProcess = worker) -> bool:
                    return await metric(worker, "folded_total") >= 2 * len(one.nodes)

                await until(folded, 20, f"after {name}: the unfolded records are folded")
                assert await metric(worker, "skipped_total") == 0
                assert await end(worker) == 0
            assert near(await committed(one), await log_ends(one)), "truthful again"
        verdict = await proven(one)
        assert verdict.repeated == 0


async def test_rule6_what_is_said_again_is_byte_identical(
    broker: DevBroker, prefix: str, tmp_path: Path
) -> None:
    async with fleet(broker.bootstrap, prefix) as one:
        far = ("--image-interval", "500")
        with WorkerProcess(broker.bootstrap, prefix, tmp_path / "a", *far) as worker:
            async with sending(one):
                await until(lambda: is_ready(worker), 20, "ready")

                async def said() -> bool:
                    return await metric(worker, "outputs_total") >= 40

                await until(said, 20, "40 outputs said")
            worker.kill()
        with WorkerProcess(broker.bootstrap, prefix, tmp_path / "b") as worker:
            await until(lambda: is_ready(worker), 25, "ready")
            await one.round()
            ends = await log_ends(one)

            async def folded() -> bool:
                at = {p: await metric(worker, "at_offset", partition=str(p)) for p in ends}
                return all(at[p] >= ends[p] - 1 for p in ends)

            await until(folded, 20, "all folded")
            assert await end(worker) == 0
        verdict = await proven(one)
        assert verdict.repeated >= 40, "everything was folded and said again"
        assert verdict.differing == 0


def test_chunks_are_small_and_know_their_image() -> None:
    noise = np.random.default_rng(2).integers(0, 255, 3_000_000, dtype=np.uint8)
    meta = {"partition": 1, "incarnation": 2}
    chunks = images.pack("c", 9, 2, meta, {"noise": noise})
    assert len(chunks) >= 3
    assert max(map(len, chunks)) < 900 * 1024
    read = [images.read_chunk(chunk) for chunk in chunks]
    assert [(c.i, c.n, c.at, c.incarnation) for c in read] == [
        (i, len(chunks), 9, 2) for i in range(len(chunks))
    ]
    (length,) = images._U32.unpack_from(chunks[0], 4)
    assert orjson.loads(chunks[0][8 : 8 + length])["law_version"] == law.LAW_VERSION
