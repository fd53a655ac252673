"""`make bench NAME=recorder`: recording beside a worker at 5,000 samples a second, and kill -9.

One broker, one worker alone on a core; broker, fleet, recorder and bench share the other. Pairs of
windows, with a recorder of all topics and without one, the order turned around from pair to pair.
Of each pair: what the worker's CPU second folds with against without, its lag, its delay. The
median over the pairs, and the interval that two order statistics give it (at least 95 %), which
asks nothing of how the figures are spread.

Then a recorder is killed with -9 again and again under the same load, and the folder is compared
with the topics, record by record.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from aiokafka import AIOKafkaConsumer, TopicPartition

from schemas.topics import full_name
from streams.dev_broker import DevBroker
from streams.recording import open_recording
from streams.recording.progress import Progress, read
from streams.topics_admin import create
from tests.bench.common import Goal, finish, median, say
from tests.bench.worker import OTHER_CORE, PARTITIONS, PREFIX, ROOT, Child, generator

SEED = 20_261_130
SURE = 0.95
SETTLE_S = 2.0
READY_S = 60.0
POLICY = (
    "rollout: {stage: expand}\ninterference: {history_ms: 30000}\nreservation: {warm_ms: 10000}\n"
)


class Recorder:
    """A `slackwater record` of all topics, from now on unless the folder is there already."""

    def __init__(self, brokers: str, folder: Path, *options: str) -> None:
        self.folder = folder
        self.log = folder.with_suffix(".log")
        run = "from streams.recording.cli import app; app()"
        command = [sys.executable, "-c", run, "--folder", str(folder), "--from", "now"]
        command += ["--brokers", brokers, "--prefix", PREFIX, *options]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
        os.sched_setaffinity(self.process.pid, {OTHER_CORE})

    async def until_it_follows(self) -> None:
        """It has read, and is less than a second of the fleet behind."""
        await self._until(lambda now: sum(now.records.values()) > 0 and now.lag["samples"] < 5_000)

    async def until_the_end(self) -> None:
        await self._until(lambda now: sum(now.lag.values()) == 0)

    async def _until(self, condition: Any) -> Progress:
        deadline = time.monotonic() + READY_S
        began_ms = time.time() * 1000
        while time.monotonic() < deadline and self.process.poll() is None:
            now = await asyncio.to_thread(read, self.folder)
            mine = now is not None and now.pid == self.process.pid and now.at_ms > began_ms
            if mine and now is not None and condition(now):
                return now
            await asyncio.sleep(0.2)
        raise SystemExit(f"the recorder does not come to it; log:\n{self.log.read_text()[-2000:]}")

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mb(self) -> float:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    async def stop(self) -> None:
        self.process.terminate()
        await asyncio.to_thread(self.process.wait, 60)


@dataclass(frozen=True, slots=True)
class Window:
    """The worker for some seconds; ``core``, ``rss_mb``: of the recorder, 0 without one."""

    per_cpu_s: float
    per_s: float
    lag: float  # mean, in samples
    lag_end: float
    delay_p50_ms: float
    delay_p99_ms: float
    core: float
    rss_mb: float


async def window(worker: Child, recorder: Recorder | None, seconds: float) -> Window:
    """Measure for so long."""
    before = len(worker.rows())
    cpu_s = recorder.cpu_s() if recorder else 0.0
    began_s = time.monotonic()
    await asyncio.sleep(seconds)
    took_s = time.monotonic() - began_s
    core = (recorder.cpu_s() - cpu_s) / took_s if recorder else 0.0
    rss_mb = recorder.rss_mb() if recorder else 0.0
    rows = await asyncio.to_thread(worker.rows)
    rows = rows[before:]
    first, last = rows[0], rows[-1]
    folded = last["folded"] - first["folded"]
    delays = np.concatenate([np.array(row["delays_ms"]) for row in rows])
    lags = [row["lag"] for row in rows]
    return Window(
        per_cpu_s=folded / (last["cpu_s"] - first["cpu_s"]),
        per_s=folded / (last["mono_s"] - first["mono_s"]),
        lag=sum(lags) / len(lags),
        lag_end=lags[-1],
        delay_p50_ms=float(np.percentile(delays, 50)),
        delay_p99_ms=float(np.percentile(delays, 99)),
        core=core,
        rss_mb=rss_mb,
    )


async def pairs(
    options: argparse.Namespace, brokers: str, worker: Child, folder: Path
) -> list[tuple[Window, Window]]:
    """(with, without) so many times; the order alternates."""
    found = []
    for turn in range(options.pairs):
        halves: dict[bool, Window] = {}
        for recording in (turn % 2 == 0, turn % 2 == 1):
            recorder = None
            if recording:
                recorder = Recorder(brokers, folder / f"pair-{turn}")
                await recorder.until_it_follows()
            await asyncio.sleep(SETTLE_S)
            halves[recording] = await window(worker, recorder, options.window)
            if recorder is not None:
                await recorder.stop()
                shutil.rmtree(recorder.folder)
        with_it, without = halves[True], halves[False]
        found.append((with_it, without))
        say(
            f"  pair {turn}: {with_it.per_cpu_s:,.0f} against {without.per_cpu_s:,.0f} samples a "
            f"CPU second, lag {with_it.lag:,.0f} against {without.lag:,.0f}, recorder "
            f"{with_it.core:.2f} of a core"
        )
    return found


async def kills(options: argparse.Namespace, brokers: str, folder: Path) -> Path:
    """Kill a recorder again and again; the folder, in which the last one has read to the end."""
    random = Random(SEED)
    root = folder / "killed"
    for _ in range(options.kills):
        recorder = Recorder(brokers, root, "--segment-bytes", "300KB")
        await recorder.until_it_follows()
        await asyncio.sleep(random.uniform(0.0, 1.5))
        recorder.process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(recorder.process.wait)
    return root


async def differing(brokers: str, root: Path) -> tuple[int, int]:
    """Records of the topics from where the recording begins, and how many of them differ."""
    compared = wrong = 0
    client = AIOKafkaConsumer(bootstrap_servers=brokers, enable_auto_commit=False)
    await client.start()
    try:
        with open_recording(root) as recording:
            for topic, number in recording.places:
                part = TopicPartition(full_name(PREFIX, topic), number)
                client.assign([part])
                end = (await client.end_offsets([part]))[part]
                client.seek(part, recording.segments(topic, number)[0].first)
                ours = recording.records(topic, number)
                while await client.position(part) < end:
                    for theirs in (await client.getmany(timeout_ms=500)).get(part, []):
                        one = next(ours, None)
                        compared += 1
                        wrong += one is None or (
                            one.offset, one.timestamp, one.key, one.value, one.headers
                        ) != (
                            theirs.offset, theirs.timestamp, theirs.key, theirs.value,
                            tuple(theirs.headers),
                        )  # fmt: skip
                wrong += sum(1 for _ in ours)
            wrong += len(recording.problems) + len(recording.manifest.gaps)
    finally:
        await client.stop()
    return compared, wrong


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Two order statistics between which the median lies, `SURE` or better (the widest of few)."""
    ordered, n = sorted(values), len(values)
    outside, k = 2 * comb(n, 0) / 2**n, 0
    while k + 1 < n // 2 and outside + 2 * comb(n, k + 1) / 2**n <= 1 - SURE:
        k += 1
        outside += 2 * comb(n, k) / 2**n
    return ordered[k], ordered[n - 1 - k]


async def bench(options: argparse.Namespace, brokers: str, folder: Path) -> int:
    """All of it; nothing that was started outlives it."""
    await create(brokers, PREFIX, PARTITIONS, 1, POLICY)
    worker = Child("worker", brokers, 20.0, folder)
    load = generator(brokers, options.nodes, options.pods, options.rate, folder / "load.log")
    try:
        say(f"{options.nodes} nodes of {options.pods} pods, {options.rate} samples a second")
        warm = options.rate * options.warm
        await worker.until("warm", lambda row: row["folded"] >= warm, load)
        found = await pairs(options, brokers, worker, folder)
        say(f"{options.kills} kills")
        root = await kills(options, brokers, folder)
        load.send_signal(signal.SIGTERM)
        await asyncio.to_thread(load.communicate)
        await worker.stop()
        last = Recorder(brokers, root)
        await last.until_the_end()
        await last.stop()
        say("compare")
        compared, wrong = await differing(brokers, root)
    finally:
        for process in (worker.process, load):
            if process.poll() is None:
                process.kill()
            process.wait()
    return finish("recorder", *judge(options, found, compared, wrong))


def judge(
    options: argparse.Namespace, found: list[tuple[Window, Window]], compared: int, wrong: int
) -> tuple[dict[str, Any], list[Goal]]:
    """Figures and goals."""
    cost = [100 * (b.per_cpu_s / a.per_cpu_s - 1) for a, b in found]
    lag = [a.lag - b.lag for a, b in found]
    delay = [a.delay_p50_ms - b.delay_p50_ms for a, b in found]
    rate = [a.per_s for a, _ in found]
    figures: dict[str, Any] = {
        "pairs": len(found),
        "window_s": options.window,
        "samples_per_s": median(rate),
        "worker_cpu_cost_pct": median(cost),
        "worker_cpu_cost_pct_interval": [round(v, 3) for v in interval(cost)],
        "worker_lag_more_samples": median(lag),
        "worker_lag_more_samples_interval": [round(v, 1) for v in interval(lag)],
        "worker_lag_end_most_samples": max(a.lag_end for a, _ in found),
        "worker_delay_p50_more_ms": median(delay),
        "worker_delay_p99_with_ms": median([a.delay_p99_ms for a, _ in found]),
        "worker_delay_p99_without_ms": median([b.delay_p99_ms for _, b in found]),
        "recorder_core": median([a.core for a, _ in found]),
        "recorder_rss_mb": max(a.rss_mb for a, _ in found),
        "kills": options.kills,
        "compared_records": compared,
        "differing_records": wrong,
        "load_average": os.getloadavg()[0],
    }
    figures = {k: round(v, 3) if isinstance(v, float) else v for k, v in figures.items()}
    return figures, [
        Goal("pairs", len(found), 10, "at_least"),
        Goal("samples_per_s", figures["samples_per_s"], 0.98 * options.rate, "at_least"),
        Goal("worker_cpu_cost_pct", figures["worker_cpu_cost_pct"], 5),
        Goal("worker_lag_more_samples", figures["worker_lag_more_samples"], options.rate / 10),
        Goal("worker_lag_end_most_samples", max(a.lag_end for a, _ in found), options.rate),
        Goal("compared_records", compared, 10 * options.rate, "at_least"),
        Goal("differing_records", wrong, 0),
    ]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--nodes", type=int, default=5_000)
    options.add_argument("--pods", type=int, default=50)
    options.add_argument("--rate", type=int, default=5_000)
    options.add_argument("--warm", type=int, default=20, help="seconds at the rate before")
    options.add_argument("--pairs", type=int, default=10)
    options.add_argument("--window", type=float, default=8.0, help="seconds measured of each half")
    options.add_argument("--kills", type=int, default=8)
    options.add_argument("--keep", type=Path, help="folder for logs and recordings")
    chosen = options.parse_args()
    os.sched_setaffinity(0, {OTHER_CORE})
    with tempfile.TemporaryDirectory() as scratch, DevBroker(say=say) as broker:
        folder = chosen.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        return asyncio.run(bench(chosen, broker.bootstrap, folder))


if __name__ == "__main__":
    sys.exit(main())
