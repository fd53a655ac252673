"""The engine alone: whatever delivery does, each offset is folded once, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agents.log import LAW_VERSION, Output, SideRecord
from agents.state import PartitionState
from schemas import codec
from schemas.records import Tick
from streams.engine import Gate, PartitionEngine, Ports
from streams.images import pack
from streams.metrics import Metrics
from streams.outputs import OutputFailed

INCARNATION = 7


@dataclass
class Raw:
    offset: int
    value: bytes | None
    timestamp: int
    topic: str = "samples"
    partition: int = 0
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = tuple(codec.TICK_HEADERS)


def tick_at(offset: int, side: dict[str, int] | None = None) -> Raw:
    tick = Tick(0, INCARNATION, LAW_VERSION, side or {})
    return Raw(offset, codec.encode(tick), 1_000 * offset)


def broken_at(offset: int) -> Raw:
    return Raw(offset, b"{", 1_000 * offset)


@dataclass
class World:
    """What an engine talks to: it notes everything, and can refuse."""

    log_begins: int = 0
    side_read: int = 1 << 60
    refuse: bool = False
    held_records: int = 20_000
    seeks: list[int] = field(default_factory=list)
    why: list[str] = field(default_factory=list)
    said: list[Output] = field(default_factory=list)
    recovers: list[int] = field(default_factory=list)
    metrics: Metrics = field(default_factory=Metrics)

    def engine(self, state: PartitionState | None = None) -> PartitionEngine:
        engine = PartitionEngine(
            0,
            Ports(
                publish=self._publish,
                seek=self._seek,
                recover=self.recovers.append,
                log_start=self._log_start,
                side=self,
                metrics=self.metrics,
                held_records=self.held_records,
            ),
        )
        engine.begin(state or PartitionState(0, INCARNATION))
        return engine

    def admit(
        self, partition: int, applied: Mapping[str, int], tick: Mapping[str, int]
    ) -> tuple[SideRecord, ...] | None:
        del partition, applied
        return () if all(offset <= self.side_read for offset in tick.values()) else None

    def applied(self, partition: int, vector: Mapping[str, int]) -> None:
        """Nothing is buffered here."""

    async def _publish(self, partition: int, outputs: Iterable[Output]) -> None:
        del partition
        if self.refuse:
            raise OutputFailed("refused")
        self.said += outputs

    def _seek(self, partition: int, offset: int, why: str) -> None:
        del partition
        self.seeks.append(offset)
        self.why.append(why)

    async def _log_start(self, partition: int) -> int:
        del partition
        return self.log_begins

    def leases(self) -> list[int]:
        return [o.offset for o in self.said if o.key == b"~lease"]


class Delivery:
    """A log and a position that obeys seeks, late: stale batches may come in between."""

    def __init__(self, world: World, records: list[Raw]) -> None:
        self.world = world
        self.records = records
        self.position = 0

    def obey(self) -> None:
        if self.world.seeks:
            self.position = self.world.seeks[-1]
            self.world.seeks.clear()

    def fetch(self, count: int) -> list[Raw]:
        batch = self.records[self.position : self.position + count]
        self.position += len(batch)
        return batch


turns = st.lists(
    st.one_of(
        st.tuples(st.just("fetch"), st.integers(1, 7)),
        st.tuples(st.just("obey"), st.just(0)),
        st.tuples(st.just("stale"), st.integers(0, 30)),
        st.tuples(st.just("jump"), st.integers(0, 30)),
    ),
    max_size=30,
)


@settings(max_examples=150, deadline=None)
@given(turns=turns, bad=st.sets(st.integers(0, 29)))
def test_every_offset_is_folded_once_whatever_delivery_does(
    turns: list[tuple[str, int]], bad: set[int]
) -> None:
    async def run() -> None:
        world = World()
        engine = world.engine()
        log = [broken_at(i) if i in bad else tick_at(i) for i in range(30)]
        delivery = Delivery(world, log)
        for turn, number in turns:
            if turn == "obey":
                delivery.obey()
            elif turn == "jump":  # Faust seeks to a committed offset
                delivery.position = number
            elif turn == "stale":  # a batch of an older position
                await engine.deliver(log[number : number + 3])
            else:
                await engine.deliver(delivery.fetch(number))
        for _ in range(100):  # delivery calms down
            delivery.obey()
            await engine.deliver(delivery.fetch(4))
        if engine.at < 29:
            delivery.position = engine.next
            await engine.deliver(delivery.fetch(30))
        assert engine.at == 29
        assert engine.gate is Gate.OPEN
        assert world.metrics.value("folded_total") == 30 - len(bad)
        assert sorted(o.offset for o in world.said if o.topic == "dead-letters") == sorted(bad)
        assert world.leases() == [i for i in range(30) if i not in bad]

    asyncio.run(run())


async def test_the_gate_opens_at_the_next_record_and_shuts_at_a_gap() -> None:
    world = World()
    engine = world.engine()
    assert world.seeks == [0]
    await engine.deliver([tick_at(3)])
    assert engine.gate is Gate.SHUT
    assert world.seeks == [0, 0]
    assert world.why == ["recovered", "gap"]
    await engine.deliver([tick_at(i) for i in range(4)])
    assert engine.open
    assert engine.at == 3
    await engine.deliver([tick_at(2), tick_at(3), tick_at(4)])
    assert engine.at == 4
    assert world.metrics.value("skipped_total") == 2
    await engine.deliver([tick_at(6)])
    assert engine.gate is Gate.SHUT
    assert world.seeks[-1] == 5


async def test_what_the_law_counts_is_a_metric_without_what_a_predecessor_counted() -> None:
    world = World()
    state = PartitionState(0, INCARNATION)
    state.counts["foreign_tick"] = 40
    engine = world.engine(state)
    foreign = Raw(1, codec.encode(Tick(0, INCARNATION + 1, LAW_VERSION, {})), 1_000)
    await engine.deliver([tick_at(0), foreign])
    await engine.deliver([tick_at(2)])
    assert world.metrics.value("law_noted_total", what="foreign_tick", partition="0") == 1
    assert state.counts["foreign_tick"] == 41


async def test_a_hole_inside_a_batch_is_not_jumped_over() -> None:
    world = World()
    engine = world.engine()
    await engine.deliver([tick_at(0), tick_at(1), tick_at(3)])
    assert engine.at == 1
    await engine.deliver([tick_at(4)])
    assert engine.at == 1
    assert world.seeks[-1] == 2


async def test_an_empty_rest_of_the_log_opens_the_gate() -> None:
    world = World()
    engine = world.engine()
    engine.sought(0, 5)
    assert not engine.open
    engine.sought(0, 0)
    assert engine.open


async def test_what_retention_removed_is_jumped_over_and_counted() -> None:
    world = World(log_begins=10)
    engine = world.engine()
    await engine.deliver([tick_at(10)])
    assert world.metrics.value("lost_total") == 10
    assert world.seeks[-1] == 10
    await engine.deliver([tick_at(10)])
    assert engine.at == 10


async def test_a_tick_waits_for_its_side_inputs_and_nothing_passes_it() -> None:
    world = World(side_read=4)
    engine = world.engine()
    await engine.deliver([tick_at(0), tick_at(1, {"ledger/0": 5}), tick_at(2)])
    assert engine.at == 0
    assert engine.waiting
    world.side_read = 5
    await engine.pump()
    assert engine.at == 2
    assert not engine.waiting


async def test_a_tick_of_another_incarnation_waits_for_nothing() -> None:
    world = World(side_read=4)
    engine = world.engine()
    foreign = Tick(0, INCARNATION + 1, LAW_VERSION, {"ledger/0": 99})
    await engine.deliver([Raw(0, codec.encode(foreign), 0), tick_at(1)])
    assert engine.at == 1
    assert world.leases() == [1]


async def test_too_much_held_is_let_go_and_read_again() -> None:
    world = World(side_read=0, held_records=5)
    engine = world.engine()
    log = [tick_at(0, {"ledger/0": 1})] + [tick_at(i) for i in range(1, 12)]
    await engine.deliver(log[:5])
    await engine.deliver(log[5:10])
    assert (engine.full, engine.gate) == (True, Gate.SHUT)
    await engine.deliver(log[5:10])
    assert world.seeks == [0], "nothing is asked for again while it would be let go again"
    world.side_read = 1
    await engine.pump()
    assert (engine.full, engine.at) == (False, 4)
    assert world.seeks[-1] == 5
    assert world.why[-1] == "full"
    await engine.deliver(log[5:])
    assert engine.at == 11
    assert engine.open


async def test_a_refused_output_sends_the_partition_back_to_its_image() -> None:
    world = World(refuse=True)
    engine = world.engine()
    await engine.deliver([tick_at(0)])
    assert engine.gate is Gate.RECOVERING
    assert world.recovers == [0]
    await engine.deliver([tick_at(1)])
    world.refuse = False
    engine.begin(PartitionState(0, INCARNATION))
    await engine.deliver([tick_at(0), tick_at(1)])
    assert world.leases() == [0, 1]


async def test_a_cold_refold_is_silent_up_to_the_end_seen_at_assignment() -> None:
    world = World()
    state = PartitionState(0, INCARNATION)
    engine = PartitionEngine(0, world.engine()._ports)
    engine.begin(state, mute_until=3)
    await engine.deliver([tick_at(i) for i in range(5)])
    assert world.leases() == [3, 4]
    assert world.metrics.value("outputs_muted_total") > 0


async def test_a_bug_stops_the_partition_and_raises_nothing() -> None:
    world = World()
    engine = world.engine()
    state: Any = engine.state
    state.side = None  # no state looks like this
    await engine.deliver([tick_at(0)])
    assert engine.gate is Gate.STOPPED
    assert engine.broken, "no image is cut of a state that may be half folded"
    assert world.metrics.value("bugs_total") == 1
    await engine.deliver([tick_at(0)])
    assert world.metrics.value("ignored_total") == 1


async def test_a_state_whose_outputs_were_not_said_is_given_up() -> None:
    world = World()
    engine = world.engine()

    async def never(partition: int, outputs: Iterable[Output]) -> None:
        del partition, outputs
        await asyncio.Event().wait()

    object.__setattr__(engine._ports, "publish", never)
    delivery = asyncio.create_task(engine.deliver([tick_at(0)]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    delivery.cancel()
    await asyncio.gather(delivery, return_exceptions=True)
    assert delivery.cancelled()
    assert engine.state is None, "no image can be cut of it"
    assert world.recovers == [0]


async def test_rule1_an_image_does_not_change_after_its_cut() -> None:
    world = World()
    engine = world.engine()
    await engine.deliver([tick_at(0, {"ledger/0": 1})])
    assert engine.state is not None
    meta, arrays = engine.state.to_arrays()
    before = pack("cut", 0, INCARNATION, meta, arrays)
    await engine.deliver([tick_at(i, {"ledger/0": 9, "acks/0": 4}) for i in range(1, 5)])
    assert engine.state.side == {"ledger/0": 9, "acks/0": 4}
    assert pack("cut", 0, INCARNATION, meta, arrays) == before
