"""Simulated workers: the real `PartitionEngine` over the fake log, images through real bytes.

A worker owns partitions, writes ticks, cuts images, publishes. It may crash, lag, and go on as a
zombie beside a new owner: nothing stops two of them from folding one log.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, Protocol

from agents.log import LAW_VERSION, Output, SideRecord
from agents.state import PartitionState
from schemas import codec, topics
from schemas.errors import BadRecord
from schemas.records import Command, Tick
from streams.engine import Gate, PartitionEngine, Ports
from streams.images import Chunk, pack, read_chunk, unpack
from streams.metrics import Metrics
from streams.outputs import OutputFailed
from streams.side_inputs import decode
from tests.sim.broker import Broker, BrokerDown, Record

INCARNATION = 7
HELD_RECORDS = 2_000
NEWS = ("acks", "fleet", "slis")


class Listener(Protocol):
    """Who hears what workers publish (`tests.sim.check`)."""

    def said(self, worker: str, partition: int, output: Output, value: bytes) -> None: ...
    def recovered(self, worker: str, partition: int, how: str) -> None: ...


def drive(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Run to the end what only ever yields to the loop."""
    try:
        while True:
            coroutine.send(None)
    except StopIteration:
        return


class Side:
    """Side topics as one worker has read them: up to ``lag_ms`` ago."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.lag_ms = 0
        self._next: dict[tuple[str, int], int] = {}

    def read(self, partition: int) -> bool:
        """Read on; whether there was anything new."""
        moved = False
        for place in self._places(partition):
            log = self._broker.read(*place, self._next.get(place, 0))
            until = self._broker.now_ms - self.lag_ms
            fresh = [record for record in log if record.timestamp <= until]
            if fresh:
                self._next[place] = fresh[-1].offset + 1
                moved = True
        return moved

    def vector(self, partition: int) -> dict[str, int]:
        """For a tick: the last offset read of each side partition."""
        return {
            f"{topic}/{number}": self._next[topic, number] - 1
            for topic, number in self._places(partition)
            if self._next.get((topic, number), 0) > 0
        }

    def admit(
        self, partition: int, applied: Mapping[str, int], tick: Mapping[str, int]
    ) -> tuple[SideRecord, ...] | None:
        """The engine's port: records in (applied, tick], or None while they are not read."""
        found: list[SideRecord] = []
        for topic, number in self._places(partition):
            label = f"{topic}/{number}"
            above, upto = applied.get(label, -1), tick.get(label, -1)
            if upto <= above:
                continue
            if self._next.get((topic, number), 0) <= upto:
                return None
            log = self._broker.whole(topic, number)[above + 1 : upto + 1]
            found += [side for record in log if (side := _decoded(topic, record)) is not None]
        found.sort(key=lambda side: (side.topic, side.partition, side.offset))
        return tuple(found)

    def applied(self, partition: int, vector: Mapping[str, int]) -> None:
        """The engine's port; nothing is buffered here, so nothing is dropped."""

    def _places(self, partition: int) -> list[tuple[str, int]]:
        return [
            (name, partition if topics.BY_NAME[name].partitioned else 0)
            for name in topics.SIDE_TOPICS
        ]


def _decoded(topic: str, record: Record) -> SideRecord | None:
    try:
        return decode(topic, record)
    except BadRecord:
        return None


class SimWorker:
    """One worker process."""

    def __init__(
        self, name: str, broker: Broker, listener: Listener, metrics: Metrics, lookback_ms: int
    ) -> None:
        self.name, self.broker, self.listener = name, broker, listener
        self.metrics, self.lookback_ms = metrics, lookback_ms
        self.side = Side(broker)
        self.engines: dict[int, PartitionEngine] = {}
        self.at: dict[int, int] = {}  # delivery's position
        self.cold: dict[int, PartitionState] = {}  # where a cold refold began
        self.lagging = False
        self.withheld = 0
        self.fail_after: int | None = None  # outputs that Kafka still takes
        self._cuts = 0
        self._lost: set[int] = set()

    def own(self, partition: int) -> None:
        """Take a partition over; what it has is found at the next poll."""
        ports = Ports(
            publish=self._publish, seek=self._seek, recover=self._lost.add,
            log_start=self._log_start, side=self.side, metrics=self.metrics,
            held_records=HELD_RECORDS,
        )  # fmt: skip
        self.engines[partition] = PartitionEngine(partition, ports)
        self._lost.add(partition)

    def drop(self, partition: int) -> None:
        """Give a partition away, or die."""
        self.engines.pop(partition, None)
        self._lost.discard(partition)

    def poll(self) -> None:
        """Recover what is lost, deliver what is new."""
        if self.lagging:
            return
        for partition, engine in list(self.engines.items()):
            try:
                if partition in self._lost:
                    self._recover(partition, engine)
                    self._lost.discard(partition)
                if self.side.read(partition) and engine.waiting:
                    drive(engine.pump())
                where = self.at[partition]
                records = self.broker.read("samples", partition, where)
                if records:
                    self.at[partition] = records[-1].offset + 1
                    drive(engine.deliver(records))
                engine.sought(self.at[partition], self.broker.end("samples", partition))
            except BrokerDown:
                return

    def tick(self, partition: int) -> None:
        """Write a tick, where the gate is open."""
        engine = self.engines[partition]
        if engine.open and not self.lagging and self.broker.up:
            tick = Tick(partition, INCARNATION, LAW_VERSION, self.side.vector(partition))
            self.broker.append("samples", partition, None, codec.encode(tick), codec.TICK_HEADERS)

    def cut(self, partition: int, *, torn: bool = False) -> None:
        """Publish an image; ``torn``: the worker dies half-way."""
        engine = self.engines[partition]
        if engine.state is None or not self.broker.up:
            return
        self._cuts += 1
        meta, arrays = engine.state.to_arrays()
        cut = f"{self.name}-{self._cuts}"
        for i, chunk in enumerate(pack(cut, engine.at, INCARNATION, meta, arrays)):
            value = chunk[: len(chunk) // 2] if torn else chunk
            self.broker.append("images", partition, f"{cut}/{i}".encode(), value)

    def _recover(self, partition: int, engine: PartitionEngine) -> None:
        end = self.broker.end("samples", partition)
        state = newest_image(self.broker, partition, end)
        mute_until, how = 0, "image"
        if state is None:
            state, mute_until = self._without_image(partition, end)
            how = "cold" if mute_until else "the beginning"
        self.listener.recovered(self.name, partition, f"{how} at {state.at}, log ends at {end}")
        engine.begin(state, mute_until)

    def _without_image(self, partition: int, end: int) -> tuple[PartitionState, int]:
        """As `streams.recovery` does it: a short whole log from its beginning, else cold."""
        state = PartitionState(partition, INCARNATION)
        since_ms = self.broker.now_ms - self.lookback_ms
        begin = self.broker.first_since("samples", partition, since_ms)
        if begin == 0:
            return state, 0
        state.at = begin - 1
        for topic in NEWS:
            number = partition if topics.BY_NAME[topic].partitioned else 0
            state.side[f"{topic}/{number}"] = self.broker.end(topic, number) - 1
        self.cold[partition] = PartitionState.from_arrays(*state.to_arrays())
        return state, end

    async def _publish(self, partition: int, outputs: Iterable[Output]) -> None:
        for output in outputs:
            value = codec.encode(output.record)
            if self.fail_after is not None:
                self.fail_after -= 1
                if self.fail_after < 0:
                    self.fail_after = None
                    raise OutputFailed("refused")
            if self._expired(output):
                self.withheld += 1
                continue
            number = partition if topics.BY_NAME[output.topic].partitioned else 0
            try:
                self.broker.append(output.topic, number, output.key or None, value)
            except BrokerDown:
                raise OutputFailed("the broker is away") from None
            self.listener.said(self.name, partition, output, value)

    def _expired(self, output: Output) -> bool:
        said = output.record
        return isinstance(said, Command) and self.broker.now_ms >= said.expires_log_ms

    def _seek(self, partition: int, offset: int, _why: str) -> None:
        self.at[partition] = offset

    async def _log_start(self, partition: int) -> int:
        return self.broker.start["samples", partition]

    @property
    def stopped(self) -> list[int]:
        """Partitions whose engine met a bug."""
        return [p for p, engine in self.engines.items() if engine.gate is Gate.STOPPED]


def newest_image(broker: Broker, partition: int, end: int) -> PartitionState | None:
    """The complete, valid image with the highest `at` below ``end``."""
    found: list[Chunk] = []
    for record in broker.read("images", partition, 0):
        try:
            found.append(read_chunk(record.value or b""))
        except (ValueError, TypeError, KeyError):
            continue
    for chunk in sorted(found, key=lambda c: c.at, reverse=True):
        if chunk.n == 1 and chunk.at < end and chunk.law_version == LAW_VERSION:
            return unpack([chunk])
    return None
