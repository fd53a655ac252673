"""`make bench NAME=worker`: one worker process on one core, real Kafka, a fleet of 5,000 nodes.

Three parts. Steady: the fleet sends 5,000 samples a second, the worker follows; delay from append
to folded, output rate, memory. Then the worker is stopped and a backlog grows, with the ticks that
a worker would have written. Bare: the same engine and law fed by a bare aiokafka consumer, nothing
published, works the backlog off. Drain: the whole worker (Faust, outputs, images) does the same.

The worker is alone on one core; broker, generator and bench share the other. Rates are samples per
CPU second of the worker process, so that other work on the machine does not count; wall clock
rates are given beside them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from agents.log import LAW_VERSION, Output
from schemas import codec
from schemas.records import Tick
from schemas.topics import BY_NAME, SIDE_TOPICS
from streams import installation, logs
from streams.dev_broker import DevBroker
from streams.engine import Gate
from streams.recovery import Recovery
from streams.settings import WorkerSettings
from streams.topics_admin import create
from streams.worker import Worker
from streams.worker_cli import spare_the_collector
from tests.bench.common import Goal, finish, say

PREFIX = "bench."
PARTITIONS = 24
ROOT = Path(__file__).resolve().parents[2]
WORKER_CORE, OTHER_CORE = 0, 1
STATS_S = 0.5
CATCH_UP_S = 120.0


class Measured(Worker):
    """A worker that notes how long after its append each record was folded."""

    def __init__(self, settings: WorkerSettings) -> None:
        super().__init__(settings)
        self.folded = 0
        self.delays_ms: list[float] = []

    async def deliver(self, partition: int, records: Sequence[Any]) -> None:
        await super().deliver(partition, records)
        now_ms = time.time() * 1000
        self.folded += len(records)
        self.delays_ms.extend(now_ms - record.timestamp for record in records)

    async def report(self, path: Path) -> None:
        """Figures into a file, again and again: the bench's other process reads them."""
        while True:
            delays, self.delays_ms = self.delays_ms, []
            figures = {
                "folded": self.folded,
                "cpu_s": time.process_time(),
                "mono_s": time.monotonic(),
                "rss_mb": rss_mb(),
                "lag": sum(
                    max(end - self.engines[p].at - 1, 0)
                    for p, end in self._ends.items()
                    if p in self.engines
                ),
                "open": sum(engine.gate is Gate.OPEN for engine in self.engines.values()),
                "ends": len(self._ends),
                "outputs": self.metrics.value("outputs_total"),
                "images": self.metrics.value("images_total"),
                "cut_s": self.metrics.value("image_cut_seconds_sum"),
                "cuts": self.metrics.value("image_cut_seconds_count"),
                "image_bytes": self.metrics.value("image_bytes"),
                "delays_ms": delays,
            }
            with path.open("ab") as file:
                file.write(orjson.dumps(figures) + b"\n")
            await asyncio.sleep(STATS_S)


class Bare(Measured):
    """The same engines and law behind a bare aiokafka consumer; nothing is published."""

    async def run(self) -> int:
        await self._probe.start()
        installed = await installation.find(self.settings)
        self.recovery = Recovery(
            self.settings, self.metrics, self._probe, installed.incarnation, self.side, self.clock
        )
        await self.side.start()
        object.__setattr__(self._ports, "publish", self._drop_outputs)
        for loop in (self.side.run, self._pump_waiting, self._look_bare):
            self._spawn(loop())
        self.on_assignment(frozenset(range(PARTITIONS)), 1)
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.settings.brokers,
            enable_auto_commit=False,
            max_poll_records=1_000,
            max_partition_fetch_bytes=1024 * 1024,
        )
        await consumer.start()
        topic = self.settings.topic("samples")
        consumer.assign([TopicPartition(topic, p) for p in range(PARTITIONS)])
        while not self._stopping.is_set():
            if len(self.deliverable()) < PARTITIONS:
                await asyncio.sleep(0.02)
                continue
            for partition, offset in self.take_seeks().items():
                consumer.seek(TopicPartition(topic, partition), offset)
                self.sought(partition, offset)
            for where, records in (await consumer.getmany(timeout_ms=200)).items():
                await self.deliver(where.partition, records)
        for task in self._tasks:
            task.cancel()
        await consumer.stop()
        await self.side.stop()
        await self._probe.stop()
        return 0

    async def _look_bare(self) -> None:
        while True:
            await self._find_ends()
            await asyncio.sleep(1.0)

    async def _drop_outputs(self, partition: int, outputs: Iterable[Output]) -> None:
        del partition, outputs


async def child(kind: str, brokers: str, image_interval_s: float, stats: Path) -> int:
    """The measured process."""
    settings = WorkerSettings(brokers, PREFIX, image_interval_s=image_interval_s)
    spare_the_collector()
    worker = Measured(settings) if kind == "worker" else Bare(settings)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    reporting = asyncio.create_task(worker.report(stats))
    try:
        return await worker.run()
    finally:
        reporting.cancel()


class Child:
    """The other end of `child`."""

    def __init__(self, kind: str, brokers: str, interval_s: float, folder: Path) -> None:
        self.stats = folder / f"{kind}-{time.monotonic_ns()}.jsonl"
        self.stats.touch()
        self.log = folder / f"{kind}.log"
        command = [sys.executable, "-m", "tests.bench.worker", "--child", kind]
        command += ["--brokers", brokers, "--image-interval", str(interval_s)]
        command += ["--stats", str(self.stats)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stderr=log, stdout=log)
        os.sched_setaffinity(self.process.pid, {WORKER_CORE})

    def rows(self) -> list[dict[str, Any]]:
        raw = self.stats.read_bytes()
        return [orjson.loads(line) for line in raw[: raw.rfind(b"\n") + 1].splitlines()]

    async def until(
        self, what: str, condition: Any, other: subprocess.Popen[bytes] | None = None
    ) -> None:
        deadline = time.monotonic() + CATCH_UP_S
        while time.monotonic() < deadline:
            rows = await asyncio.to_thread(self.rows)
            if rows and condition(rows[-1]):
                return
            if self.process.poll() is not None:
                break
            if other is not None and other.poll() is not None:
                raise SystemExit(f"{what}: the generator ended; see its log")
            await asyncio.sleep(STATS_S)
        raise SystemExit(f"{what}: not reached; log:\n{self.log.read_text()[-2000:]}")

    async def stop(self) -> None:
        self.process.terminate()
        await asyncio.to_thread(self.process.wait, 30)


def generator(brokers: str, nodes: int, pods: int, rate: int, log: Path) -> subprocess.Popen[bytes]:
    """The project's own load generator, on the other core."""
    run = "from node_agent.simulate.cli import app; app()"
    command = [sys.executable, "-c", run, "--brokers", brokers]
    command += ["--prefix", PREFIX, "--nodes", str(nodes), "--pods", str(pods)]
    command += ["--rate", str(rate), "--json"]
    with log.open("ab") as file:
        made = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=file)
    os.sched_setaffinity(made.pid, {OTHER_CORE})
    return made


async def side_vectors(settings: WorkerSettings) -> dict[int, dict[str, int]]:
    """For each partition the newest side offsets, for the bench's own ticks."""
    consumer = AIOKafkaConsumer(bootstrap_servers=settings.brokers, enable_auto_commit=False)
    await consumer.start()
    try:
        where = [
            TopicPartition(settings.topic(name), p)
            for name in SIDE_TOPICS
            for p in range(PARTITIONS if BY_NAME[name].partitioned else 1)
        ]
        ends = await consumer.end_offsets(where)
    finally:
        await consumer.stop()
    vectors: dict[int, dict[str, int]] = {}
    for partition in range(PARTITIONS):
        vector = {}
        for name in SIDE_TOPICS:
            number = partition if BY_NAME[name].partitioned else 0
            end = ends[TopicPartition(settings.topic(name), number)]
            if end:
                vector[f"{name}/{number}"] = end - 1
        vectors[partition] = vector
    return vectors


async def tick(settings: WorkerSettings, stop: asyncio.Event) -> None:
    """The ticks a worker would write, while there is none."""
    installed = await installation.find(settings)
    vectors = await side_vectors(settings)
    producer = AIOKafkaProducer(bootstrap_servers=settings.brokers)
    await producer.start()
    try:
        while not stop.is_set():
            for partition, vector in vectors.items():
                one = Tick(partition, installed.incarnation, LAW_VERSION, vector)
                await producer.send_and_wait(
                    settings.topic("samples"),
                    codec.encode(one),
                    partition=partition,
                    headers=codec.TICK_HEADERS,
                )
                await asyncio.sleep(1 / PARTITIONS)
    finally:
        await producer.stop()


def rss_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def rates(rows: list[dict[str, Any]], backlog: int) -> dict[str, float]:
    """Samples per CPU second and per second, from 10 to 95 % of a backlog."""
    within = [row for row in rows if 0.10 * backlog <= row["folded"] <= 0.95 * backlog]
    if len(within) < 3:
        raise SystemExit("the backlog was worked off too soon to measure: give a longer --backlog")
    first, last = within[0], within[-1]
    folded = last["folded"] - first["folded"]
    return {
        "per_cpu_s": folded / (last["cpu_s"] - first["cpu_s"]),
        "per_s": folded / (last["mono_s"] - first["mono_s"]),
    }


async def bench(options: argparse.Namespace, brokers: str, folder: Path) -> int:
    """All three parts; nothing that was started outlives it."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        return await measure(options, brokers, folder, started)
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
            process.wait()


async def measure(
    options: argparse.Namespace,
    brokers: str,
    folder: Path,
    started: list[subprocess.Popen[bytes]],
) -> int:
    settings = WorkerSettings(brokers, PREFIX)
    policy = (
        "rollout: {stage: expand}\n"
        "interference: {history_ms: 30000}\nreservation: {warm_ms: 10000}\n"
    )
    await create(brokers, PREFIX, PARTITIONS, 1, policy)
    nodes, pods, rate = options.nodes, options.pods, options.rate

    say(f"steady: {nodes} nodes of {pods} pods at {rate} samples a second")
    worker = Child("worker", brokers, options.image_interval, folder)
    load = generator(brokers, nodes, pods, rate, folder / "load.log")
    started += [worker.process, load]
    warm = rate * options.warm
    await worker.until("warm", lambda row: row["folded"] >= warm, load)
    before = len(worker.rows())
    await asyncio.sleep(options.steady)
    steady = worker.rows()[before:]
    await worker.stop()

    say("backlog")
    stop = asyncio.Event()
    ticking = asyncio.create_task(tick(settings, stop))
    await asyncio.sleep(options.backlog)
    load.send_signal(signal.SIGTERM)
    summary = orjson.loads((await asyncio.to_thread(load.communicate))[0])
    stop.set()
    await ticking
    backlog = rate * options.backlog

    drained = {}
    rss = 0.0
    for kind in ("bare", "worker"):
        say(f"drain by {kind}")
        one = Child(kind, brokers, options.image_interval, folder)
        started.append(one.process)
        await one.until(
            f"{kind} drained",
            lambda row: row["ends"] == PARTITIONS and row["folded"] and row["lag"] < rate,
        )
        rows = one.rows()
        await one.stop()
        drained[kind] = rates(rows, rows[-1]["folded"])
        rss = max(rss, *(row["rss_mb"] for row in rows))
        say(f"  {drained[kind]}")
    return finish("worker", *judge(steady, summary, drained, rss, backlog, options))


def judge(
    steady: list[dict[str, Any]],
    summary: dict[str, Any],
    drained: dict[str, dict[str, float]],
    rss: float,
    backlog: int,
    options: argparse.Namespace,
) -> tuple[dict[str, Any], list[Goal]]:
    """Figures and goals."""
    delays = np.concatenate([np.array(row["delays_ms"]) for row in steady])
    first, last = steady[0], steady[-1]
    seconds = last["mono_s"] - first["mono_s"]
    rss = max(rss, *(row["rss_mb"] for row in steady))
    sample_bytes = summary["sample_bytes"] / max(summary["samples"], 1)
    ratio = drained["worker"]["per_cpu_s"] / drained["bare"]["per_cpu_s"]
    figures: dict[str, Any] = {
        "nodes": options.nodes,
        "pods_per_node": options.pods,
        "partitions": PARTITIONS,
        "samples_per_core_s": drained["worker"]["per_cpu_s"],
        "samples_per_wall_s": drained["worker"]["per_s"],
        "bare_samples_per_core_s": drained["bare"]["per_cpu_s"],
        "bare_samples_per_wall_s": drained["bare"]["per_s"],
        "ratio_to_bare": ratio,
        "pod_samples_per_core_s": drained["worker"]["per_cpu_s"] * options.pods,
        "steady_samples_per_s": (last["folded"] - first["folded"]) / seconds,
        "steady_core": (last["cpu_s"] - first["cpu_s"]) / seconds,
        "steady_outputs_per_s": (last["outputs"] - first["outputs"]) / seconds,
        "steady_delay_p50_ms": float(np.percentile(delays, 50)),
        "steady_delay_p99_ms": float(np.percentile(delays, 99)),
        "images": last["images"] - first["images"],
        "image_interval_s": options.image_interval,
        "image_all_mb": last["image_bytes"] / 1e6,
        "image_cut_ms": (last["cut_s"] - first["cut_s"])
        / max(last["cuts"] - first["cuts"], 1)
        * 1000,
        "rss_mb": rss,
        "sample_bytes": sample_bytes,
        "backlog_samples": backlog,
        "load_average": os.getloadavg()[0],
    }
    figures = {k: round(v, 3) if isinstance(v, float) else v for k, v in figures.items()}
    return figures, [
        Goal("samples_per_core_s", figures["samples_per_core_s"], 10_000, "at_least"),
        Goal("steady_delay_p99_ms", figures["steady_delay_p99_ms"], 500),
        Goal("ratio_to_bare", figures["ratio_to_bare"], 0.5, "at_least"),
        Goal("rss_mb", figures["rss_mb"], 1024),
        Goal("sample_bytes", figures["sample_bytes"], 3072),
    ]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--nodes", type=int, default=5_000)
    options.add_argument("--pods", type=int, default=50)
    options.add_argument("--rate", type=int, default=5_000)
    options.add_argument(
        "--warm", type=int, default=20, help="seconds at the rate before measuring"
    )
    options.add_argument("--steady", type=int, default=30, help="seconds measured")
    options.add_argument("--backlog", type=int, default=30, help="seconds of backlog")
    options.add_argument("--image-interval", type=float, default=20.0)
    options.add_argument("--keep", type=Path, help="folder for logs and figures")
    options.add_argument("--child", choices=["worker", "bare"], help=argparse.SUPPRESS)
    options.add_argument("--brokers", default="", help=argparse.SUPPRESS)
    options.add_argument("--stats", type=Path, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.child:
        logs.set_up("info")
        return uvloop.run(child(chosen.child, chosen.brokers, chosen.image_interval, chosen.stats))
    os.sched_setaffinity(0, {OTHER_CORE})
    with tempfile.TemporaryDirectory() as scratch, DevBroker(say=say) as broker:
        folder = chosen.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        return asyncio.run(bench(chosen, broker.bootstrap, folder))


if __name__ == "__main__":
    sys.exit(main())
