"""A whole small cluster in one thread, and `run(seed)`: the storm, the calm, the verdict.

Everything is drawn from one `random.Random(seed)`; nothing here reads a clock. One quantum: faults
that are due, nodes, workers, second stage, bridge, then the checks.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

from schemas import codec, policy
from schemas.errors import BadPolicy
from schemas.records import Ack, PolicyRecord
from streams.metrics import Metrics
from tests.sim import check_end, faults, plan
from tests.sim.broker import START_MS, Broker, Record
from tests.sim.check_node import NodeCheck
from tests.sim.check_output import OutputCheck
from tests.sim.findings import Report
from tests.sim.kernel import GIB, Kernel
from tests.sim.node import PERIOD_MS, SPOOL_PARCELS, SimNode
from tests.sim.others import Bridge, Scheduler, SecondStage
from tests.sim.plan import QUANTUM_MS, Plan
from tests.sim.worker import INCARNATION, SimWorker

COOLDOWN_MS = 4_000
LOAD_STEP = 0.02  # chance of a new load, each online pod each quantum
POLL = 0.6  # chance that a worker is delivered to, each quantum
Tweak = Callable[["Cluster"], None]


class _Inline(ThreadPoolExecutor):
    """Runs at once, in this thread: a run has one."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class Cluster:
    """All parts of one run. `faults` and the tests change it between quanta."""

    def __init__(self, seed: int, drawn: Plan | None, directory: Path) -> None:
        self.dice = Random(seed)
        self.plan = plan.draw(self.dice) if drawn is None else drawn
        self.report = Report(seed)
        self.broker = Broker()
        self.check = NodeCheck(self.report, self.broker, START_MS, COOLDOWN_MS)
        self.outputs = OutputCheck(self.report, self.broker, START_MS)
        self.policy: policy.Policy | None = None
        self.versions = 0
        self.bad: dict[tuple[str, int, int], str] = {}  # place of a malformed record -> what it is
        self.loop = asyncio.new_event_loop()
        self.loop.set_default_executor(_Inline(1))
        self.metrics = Metrics()
        self.workers = [self._worker(i) for i in range(self.plan.workers)]
        self.owner: dict[int, SimWorker] = {}
        self.zombies: list[tuple[int, SimWorker]] = []
        self.cold: dict[int, Any] = {}
        for worker in self.workers:
            worker.cold = self.cold
        self.stage = SecondStage(self.broker, self.plan.partitions, INCARNATION)
        self.bridge = Bridge(self.broker, self.plan.partitions, self.report, START_MS)
        self.scheduler = Scheduler(self.broker, self.bridge, self.dice)
        self.nodes = [self._node(i, directory) for i in range(self.plan.nodes)]
        self.calm = False
        self.publish_policy(self.plan.policy(65))
        for node in self.nodes:
            self.populate(node)
            node.start()
        self.rebalance()

    @property
    def at_ms(self) -> int:
        """Since the start of the run."""
        return self.broker.now_ms - START_MS

    def tell(self, line: str) -> None:
        self.report.tell(self.at_ms, line)

    def quantum(self) -> None:
        """Let `QUANTUM_MS` pass everywhere."""
        self.broker.now_ms += QUANTUM_MS
        self.check.before(self.nodes)
        for node in self.nodes:
            if not self.calm:
                self._live(node)
            node.advance(QUANTUM_MS)
        for worker in self.workers:
            if self.calm or self.dice.random() < POLL:
                worker.poll()
            for partition in list(worker.engines):
                self._pace(worker, partition)
        if self.at_ms % 500 == 0:
            self.stage.step(self.policy)
        if self.at_ms % PERIOD_MS == 0:
            self.bridge.step()
        self.check.look(self.nodes)
        self._bounds()

    def _pace(self, worker: SimWorker, partition: int) -> None:
        phase_ms = partition * QUANTUM_MS
        if (self.at_ms - phase_ms) % 1_000 == 0:
            worker.tick(partition)
        if (self.at_ms - phase_ms) % self.plan.image_every_ms == 0:
            worker.cut(partition)

    def _live(self, node: SimNode) -> None:
        """Online load that comes and goes, and a scheduler that lends now and then."""
        for pod in node.kernel.of("online", "host"):
            if self.dice.random() < LOAD_STEP:
                pod.want_milli = pod.request_milli * self.dice.randint(0, 130) // 100
        if self.dice.random() < LOAD_STEP * 3:
            self.scheduler.step(node.name, node.partition)

    # What faults and tests do to it.

    def populate(self, node: SimNode) -> None:
        """A full set of pods, all of them new."""
        node.kernel.pods.clear()
        share = node.kernel.cpu_milli // 4
        for kind in ("online", "online", "host"):
            size = self.dice.randint(GIB // 4, 3 * GIB)
            node.kernel.place("online" if kind == "online" else "host", share // 2, size)
        for _ in range(self.dice.randint(1, 3)):
            node.kernel.place("best_effort", self.dice.randint(500, 4_000), GIB // 2)
        self.check.unsettle(node)

    def churn(self, node: SimNode) -> None:
        """One pod goes, one comes."""
        if node.kernel.pods:
            node.kernel.pods.pop(self.dice.choice(sorted(node.kernel.pods)))
        if self.dice.random() < 0.6:
            node.kernel.place("best_effort", self.dice.randint(500, 4_000), GIB // 2)
        else:
            node.kernel.place("online", node.kernel.cpu_milli // 8, GIB)
        self.check.unsettle(node)

    def publish_policy(self, text: str) -> None:
        """A new version of the policy; what cannot be parsed changes nothing."""
        if not self.broker.up:
            return
        self.versions += 1
        record = PolicyRecord("default", self.versions, "", text)
        self.broker.append("policies", 0, b"default", codec.encode(record))
        try:
            parsed = policy.parse(text, "sim")
        except BadPolicy:
            return
        if parsed.name == "default":
            self.policy = parsed
            self.check.policies.append((self.broker.now_ms, parsed))
            for node in self.nodes:
                self.check.unsettle(node)

    def bad_record(self, topic: str, partition: int, kind: int, noise: bytes) -> None:
        """Put something there that nobody can read."""
        log = self.broker.whole("samples", partition)
        good: Record | None = next((r for r in reversed(log) if r.key is not None), None)
        key, value, headers = b"n0", bytearray(noise), codec.PACKED_HEADERS
        if topic != "samples":
            headers = codec.JSON_HEADERS
        elif good is not None and good.value is not None and kind > 0:
            key = good.key or b""
            value = bytearray(good.value)
            if kind == 1:
                value[len(value) // 2] ^= 0x10
            elif kind == 2:
                del value[-9:]
            elif kind == 3:
                key = b"somebody-else"
            else:
                headers = [("enc", b"riddle"), ("v", b"1")]
        record = self.broker.append(topic, partition, key, bytes(value), headers)
        self.bad[topic, partition, record.offset] = f"kind {kind}"

    def kill_owner(self, partition: int, *, torn: bool, lose_images: bool) -> None:
        """The owner's process dies with all that it owns."""
        worker = self.owner.get(partition)
        if worker is None:
            return
        if torn:
            worker.cut(partition, torn=True)
        mine = list(worker.engines)
        for number in mine:
            worker.drop(number)
            if self.owner.get(number) is worker:
                del self.owner[number]
        self.zombies = [(p, w) for p, w in self.zombies if w is not worker]
        if lose_images:
            for number in mine:
                # A zombie beside a cold owner would say other things: two states, one log.
                self.end_zombies(number)
                if number not in self.owner:
                    self.broker.lose("images", number)

    def rebalance(self) -> None:
        """Partitions without an owner get one."""
        for partition in range(self.plan.partitions):
            if partition not in self.owner:
                free = [w for w in self.workers if partition not in w.engines]
                if free:
                    self._give(partition, self.dice.choice(free))

    def make_zombie(self, partition: int) -> None:
        """The owner was voted out and has not noticed; another one owns the partition too."""
        old = self.owner.get(partition)
        free = [w for w in self.workers if partition not in w.engines]
        if old is None or not free or not self.broker.up or old.engines[partition].state is None:
            return
        old.cut(partition)  # without any image the two would begin cold, each in its own way
        self.zombies.append((partition, old))
        self._give(partition, self.dice.choice(free))

    def end_zombies(self, only: int | None = None) -> None:
        """They notice."""
        for partition, worker in list(self.zombies):
            if only in (None, partition):
                worker.drop(partition)
                self.zombies.remove((partition, worker))

    def heal(self) -> None:
        """The end of all faults."""
        self.calm = self.broker.up = True
        self.end_zombies()
        for worker in self.workers:
            worker.lagging, worker.side.lag_ms, worker.fail_after = False, 0, None
        self.rebalance()
        self.stage.mute = self.stage.ill = False
        self.outputs.ill_since_ms = None
        for node in self.nodes:
            wall_ms = node.faults.wall_offset_ms
            node.faults = type(node.faults)(wall_offset_ms=wall_ms)
            node.halted = False
            if node.agent is None:
                node.start()
            for pod in node.kernel.of("best_effort"):
                pod.used_bytes = GIB // 2
                pod.want_milli = max(pod.want_milli, node.kernel.cpu_milli)

    def _give(self, partition: int, worker: SimWorker) -> None:
        self.owner[partition] = worker
        worker.own(partition)
        self.tell(f"{worker.name} owns {partition}")

    def _worker(self, number: int) -> SimWorker:
        return SimWorker(
            f"w{number}", self.broker, self.outputs, self.metrics, self.plan.lookback_ms
        )

    def _node(self, number: int, directory: Path) -> SimNode:
        dice = Random(self.dice.getrandbits(64))
        cpu_milli = self.dice.choice((4_000, 8_000, 16_000))
        kernel = Kernel(f"n{number}", cpu_milli, 32 * GIB, dice)
        kernel.boot()
        return SimNode(
            kernel=kernel, broker=self.broker, partition=number % self.plan.partitions,
            witness=self.check, dice=dice, directory=directory / kernel.name, drive=self._drive,
            phase_ms=self.dice.randrange(0, PERIOD_MS, QUANTUM_MS),
            reserved_milli=self.dice.choice((0, 300)),
        )  # fmt: skip

    def _drive(self, coroutine: Coroutine[Any, Any, list[Ack]]) -> list[Ack]:
        return self.loop.run_until_complete(coroutine)

    def _bounds(self) -> None:
        """Nothing grows without end."""
        for node in self.nodes:
            if node.agent is not None and len(node.agent.spool) > SPOOL_PARCELS:
                self.report.broken("bounded", self.at_ms, f"{node.name} spool")
        for worker in self.workers:
            for partition, engine in worker.engines.items():
                if partition in worker.stopped:
                    self.report.broken("no_bug", self.at_ms, f"{worker.name} stopped {partition}")
                    worker.drop(partition)
                    break
                if engine.state is not None and len(engine.state.orders_ms) > 1_000:
                    self.report.broken("bounded", self.at_ms, "orders")

    def close(self) -> None:
        for node in self.nodes:
            node.crash()
        self.loop.close()


def run(seed: int, drawn: Plan | None = None, tweak: Tweak | None = None) -> Report:
    """One run. ``tweak`` may change the cluster before it starts (tests do)."""
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as directory:
        cluster = Cluster(seed, drawn, Path(directory))
        try:
            events = faults.draw(cluster, cluster.dice)
            if tweak is not None:
                tweak(cluster)
            _play(cluster, events)
            check_end.verdict(cluster)
        finally:
            cluster.close()
            logging.disable(logging.NOTSET)
    cluster.report.digest = cluster.outputs.digest()
    return cluster.report


def _play(cluster: Cluster, events: list[faults.Event]) -> None:
    waiting = list(events)
    whole_ms = cluster.plan.storm_ms + plan.WHOLE_WITHIN_MS
    while cluster.at_ms < cluster.plan.end_ms:
        while waiting and waiting[0][0] <= cluster.at_ms:
            _, _, told, act = waiting.pop(0)
            cluster.tell(told)
            act()
        if cluster.at_ms >= cluster.plan.storm_ms and not cluster.calm:
            cluster.tell("the storm is over")
            cluster.heal()
        cluster.quantum()
        if cluster.at_ms == whole_ms:
            check_end.whole(cluster)
