"""All that one partition of `samples` has taught: seats of nodes, two arenas, what ticks admitted.

Owned by the caller of `agents.step.step`, changed in place by it. `to_arrays` and `from_arrays` are
the image: an exact round trip of the rows in use. `digest` says whether two states are equal.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from zlib import crc32

import msgspec
import numpy as np

from agents import (
    burst,
    capacity,
    claims,
    evict_cpu,
    evict_memory,
    fold,
    interference,
    inventory,
    isolate,
    law,
    machine,
    reservation,
    slo_state,
    slo_watch,
    suppress,
    suppress_cpuset,
    windows,
)
from agents.table import ABSENT, Array, Bools, Ints, Table, spans
from schemas.policy import Policy, Published
from schemas.records import FleetFacts, Int64

if TYPE_CHECKING:
    from agents.prediction.held import Held

IMAGE_VERSION = 6  # raised with every change of what an image holds
ROOM_STEP = 8
"""Slots are given in spans of a multiple of this."""
GROWTH = 4
"""An arena that is full grows by a quarter."""
SMALLEST = 8
"""Rows and slots of an arena that has just been made."""

_NO_CONTENT = ("node.start", "node.room", "node.policy_no", "node.isolate_looked", "pod.row")
"""Where it lies, and what is only noted down until the next tick."""
_MODULES = (
    inventory, law, fold, windows, suppress, evict_memory, evict_cpu, capacity, reservation,
    interference,
    machine, suppress_cpuset, burst, isolate, claims, slo_watch,
)  # fmt: skip
NODE_FIELDS = tuple(field for module in _MODULES for field in module.NODE_FIELDS)
POD_FIELDS = tuple(field for module in _MODULES for field in module.POD_FIELDS)


class Seat:
    """What is kept of one node outside the arenas: its name, its agent's start, its pods' uids,
    and what selectors and its own layers of the policy look at.
    """

    __slots__ = (
        "annotation", "base_ms", "boot", "cpus", "labels", "machine", "mono_us", "name", "retired",
        "row", "seen_ms", "seq", "uids",
    )  # fmt: skip

    def __init__(self, name: str, row: int, seen_ms: int) -> None:
        self.name = name
        self.row = row
        self.seen_ms = seen_ms  # log time of the last sign of life
        self.boot = b""  # empty: no sample yet
        self.retired: list[bytes] = []  # superseded boots, oldest first
        self.seq = 0
        self.mono_us = ABSENT
        self.base_ms = 0  # smallest (log time - monotonic) of this boot
        self.uids: tuple[str, ...] = ()
        self.labels: dict[str, str] = {}
        self.annotation = ""
        self.machine = machine.Machine()
        self.cpus: tuple[int, ...] = ()  # best effort is bound to; none: not bound so


class PartitionState:
    """The state of one partition; see the module. ``at`` is the last offset that was folded."""

    def __init__(self, partition: int, incarnation: int, *, fast_only: bool = False) -> None:
        """``fast_only``: a node's own state, which decides at samples and leaves the slow."""
        self.fast_only = fast_only
        self.partition = partition
        self.incarnation = incarnation
        self.at = -1
        self.log_ms = 0
        self.side: dict[str, int] = {}
        self.laws = law.Laws(None)
        self.policy_digest = ""
        self.tick_ms = ABSENT  # log time of the last tick that decided
        self.facts: FleetFacts | None = None
        self.facts_ms = ABSENT  # log time of the tick that admitted them
        self.orders_ms: list[int] = []  # log times of the last cool-down's evictions
        self.ledger: dict[str, dict[str, tuple[int, ...]]] = {}  # node, scheduler -> lent_sum's
        self.watches: dict[bytes, slo_state.Watches] = {}  # node
        self.guards: dict[bytes, slo_state.Guard] = {}  # node
        self.beyond: set[bytes] = set()  # nodes of which some watch counts rounds, or did
        self.counts: Counter[str] = Counter()
        self.seats: dict[bytes, Seat] = {}
        self.nodes = Table(NODE_FIELDS)
        self.pods = Table(POD_FIELDS)
        self.models: Held | None = None  # None: nothing is predicted
        self._free_rows: list[int] = []
        self._free_slots: dict[int, list[int]] = {}
        self._next_row = 0
        self._next_slot = 0

    @property
    def policy(self) -> Policy | None:
        """The cluster's policy in force, as its stage lets it act; a node's is `law.of`."""
        return None if self.laws.published is None else self.laws[0]

    @property
    def law(self) -> Policy:
        """The cluster's policy, or the defaults where only the manner of the loop is asked for."""
        return self.laws[0]

    def seat_of(self, key: bytes) -> Seat:
        """The node's seat; a new one gets the next row. Raises UnicodeDecodeError."""
        seat = self.seats.get(key)
        if seat is None:
            name = key.decode()
            seat = self.seats[key] = Seat(name, self._take_row(), self.log_ms)
            self.nodes["phase"][seat.row] = crc32(key)
            lent = self.ledger.get(name)
            if lent:
                self.nodes["lent"][seat.row] = lent_sum(lent.values())
            law.settle(self, seat)
        return seat

    def forget(self, key: bytes) -> None:
        """Drop a node, its pods and its row."""
        seat = self.seats.pop(key)
        self.watches.pop(key, None)
        self.guards.pop(key, None)
        self.beyond.discard(key)
        row = seat.row
        start, room = int(self.nodes["start"][row]), int(self.nodes["room"][row])
        self.clear_slots(slice(start, start + room))
        self.release_slots(start, room)
        self.nodes.clear(row)
        if self.models is not None:
            self.models.clear_node(row)
        self._free_rows.append(row)

    def unsaid(self) -> None:
        """What was decided so far was said by nobody: what stands is a predecessor's word.

        Capacity is said by change, so it is said anew; commands and reports come again anyway.
        """
        self.nodes["said_ms"][:] = ABSENT

    def rows(self) -> Ints:
        """Rows in use, in the order of the seats."""
        return np.array([seat.row for seat in self.seats.values()], dtype=np.int64)

    def slots_of(self, rows: Ints) -> tuple[Ints, Ints, Ints]:
        """(slots, owner, place) of every pod of these rows: owner indexes ``rows``."""
        return spans(self.nodes["start"].take(rows), self.nodes["count"].take(rows))

    def pods_where(self, mask: Bools, rows: Ints) -> tuple[Ints, Ints]:
        """(slots, owner) of the pods of ``rows`` in ``mask``, which is over all slots of the arena.

        In the order of the slots; owner indexes ``rows``. For what is asked of most pods at once:
        `slots_of` costs more.
        """
        slots = np.flatnonzero(mask[: self._next_slot])
        place = np.full(self.nodes.size, ABSENT, dtype=np.int64)
        place[rows] = np.arange(len(rows))
        owner = place.take(self.pods["row"].take(slots))
        if len(rows) < len(self.seats):
            mine = owner != ABSENT
            slots, owner = slots[mine], owner[mine]
        return slots, owner

    def take_slots(self, count: int) -> tuple[int, int]:
        """(start, room) of a span for ``count`` pods; its slots hold nothing."""
        room = -(-count // ROOM_STEP) * ROOM_STEP
        free = self._free_slots.get(room)
        if free:
            return free.pop(), room
        start = self._next_slot
        self._next_slot += room
        if self._next_slot > self.pods.size:
            self.pods.grow(_roomier(self.pods.size, self._next_slot))
            if self.models is not None:
                self.models.pods.grow(self.pods.size)
        return start, room

    def clear_slots(self, slots: slice) -> None:
        """Let these slots hold nothing."""
        for table in self.by_slot():
            table.clear(slots)

    def by_slot(self) -> list[Table]:
        """All that is kept slot by slot, and must move with a pod."""
        return [self.pods] if self.models is None else [self.pods, self.models.pods]

    def release_slots(self, start: int, room: int) -> None:
        """Give a cleared span back."""
        if room:
            self._free_slots.setdefault(room, []).append(start)

    def _take_row(self) -> int:
        if self._free_rows:
            return self._free_rows.pop()
        row = self._next_row
        self._next_row += 1
        if self._next_row > self.nodes.size:
            self.nodes.grow(_roomier(self.nodes.size, self._next_row))
            if self.models is not None:
                self.models.grow_nodes(self.nodes.size)
        return row

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """(meta, arrays): meta can be said in JSON; the arrays hold used rows only, as copies."""
        return self._image(list(self.seats.items()))

    def digest(self) -> str:
        """32 hex digits of the state's content, whatever rows and slots it lies in."""
        meta, arrays = self._image(sorted(self.seats.items()))
        whole = hashlib.sha256(msgspec.json.encode(meta, order="sorted"))
        for name in sorted(arrays):
            whole.update(name.encode())
            whole.update(np.ascontiguousarray(arrays[name]).data)
        return whole.hexdigest()[:32]

    def _image(self, seats: list[tuple[bytes, Seat]]) -> tuple[dict[str, Any], dict[str, Array]]:
        rows = np.array([seat.row for _, seat in seats], dtype=np.int64)
        arrays = {f"node.{k}": v for k, v in self.nodes.copy_rows(rows).items()}
        slots, _, _ = self.slots_of(rows)
        arrays |= {f"pod.{k}": v for k, v in self.pods.copy_rows(slots).items()}
        for name in _NO_CONTENT:
            arrays[name] = np.zeros_like(arrays[name])
        if self.models is not None:
            arrays |= {f"model.{k}": v for k, v in self.models.image(slots, rows).items()}
        meta = {
            "version": IMAGE_VERSION,
            **{name: _own(getattr(self, name)) for name in _PLAIN},
            "published": msgspec.to_builtins(self.laws.published),
            "facts": None if self.facts is None else msgspec.to_builtins(self.facts),
            "counts": dict(self.counts),
            "ledger": {k: {s: list(v) for s, v in d.items()} for k, d in self.ledger.items()},
            "watches": slo_state.image(self.watches),
            "guards": slo_state.image(self.guards),
            "seats": [_seat_out(seat) for _, seat in seats],
        }
        return meta, arrays

    @classmethod
    def from_arrays(cls, meta: dict[str, Any], arrays: dict[str, Array]) -> PartitionState:
        """The state that `to_arrays` described. Raises ValueError for another image version."""
        if meta["version"] != IMAGE_VERSION:
            raise ValueError(f"image version {meta['version']}, this reads {IMAGE_VERSION}")
        state = cls(meta["partition"], meta["incarnation"])
        for name, kind in _PLAIN.items():
            setattr(state, name, msgspec.convert(meta[name], kind))
        published = msgspec.convert(meta["published"], Published | None)
        if meta["facts"] is not None:
            state.facts = msgspec.convert(meta["facts"], FleetFacts)
        state.counts = Counter(msgspec.convert(meta["counts"], dict[str, Int64]))
        state.ledger = msgspec.convert(meta["ledger"], dict[str, dict[str, tuple[Int64, ...]]])
        state.watches = slo_state.watches_of(meta["watches"])
        state.guards = slo_state.guards_of(meta["guards"])
        state.beyond = {k for k, each in state.watches.items() if slo_state.suffering(each)}
        state._restore(meta["seats"], arrays)
        law.enact(state, published)
        return state

    def _restore(self, seats: list[dict[str, Any]], arrays: dict[str, Array]) -> None:
        self.nodes.grow(max(len(seats), SMALLEST))
        self._next_row = len(seats)
        rows = np.arange(len(seats), dtype=np.int64)
        self.nodes.write_rows(rows, _under("node.", arrays))
        if self.nodes["count"][rows].tolist() != [len(said["uids"]) for said in seats]:
            raise ValueError("the image counts other pods than it names")
        rooms = -(-arrays["node.count"] // ROOM_STEP) * ROOM_STEP
        starts = np.cumsum(rooms) - rooms
        self.nodes["start"][rows], self.nodes["room"][rows] = starts, rooms
        self._next_slot = int(np.add.reduce(rooms, dtype=np.int64))
        self.pods.grow(max(self._next_slot, SMALLEST))
        slots, owner, _ = self.slots_of(rows)
        self.pods.write_rows(slots, _under("pod.", arrays))
        self.pods["row"][slots] = rows.take(owner)
        models = _under("model.", arrays)
        if models:
            from agents.prediction.held import Held  # noqa: PLC0415  (see `agents.predict`)

            self.models = Held.restored(models, slots, rows, (self.pods.size, self.nodes.size))
        for row, said in enumerate(seats):
            self.seats[said["name"].encode()] = _seat_in(said, row)


_PLAIN: dict[str, Any] = {
    "partition": Int64, "incarnation": Int64, "at": Int64, "log_ms": Int64,
    "side": dict[str, Int64], "policy_digest": str, "tick_ms": Int64, "facts_ms": Int64,
    "orders_ms": list[Int64],
}  # fmt: skip


def _own(value: Any) -> Any:
    """A copy where sharing it would let an image change after its cut."""
    return value.copy() if isinstance(value, dict | list) else value


def lent_sum(lent: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """Batch milli and bytes, mid milli and bytes, over all schedulers."""
    total = [0] * capacity.AMOUNTS
    for one in lent:
        for place, amount in enumerate(one):
            total[place] += amount
    return tuple(total)


def _roomier(size: int, wanted: int) -> int:
    return max(wanted, size + size // GROWTH, SMALLEST)


def _under(prefix: str, arrays: dict[str, Array]) -> dict[str, Array]:
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}


def _seat_out(seat: Seat) -> dict[str, Any]:
    return {
        "name": seat.name,
        "boot": seat.boot.hex(),
        "retired": [boot.hex() for boot in seat.retired],
        "seen_ms": seat.seen_ms,
        "seq": seat.seq,
        "mono_us": seat.mono_us,
        "base_ms": seat.base_ms,
        "uids": list(seat.uids),
        "labels": dict(seat.labels),
        "annotation": seat.annotation,
        "machine": msgspec.to_builtins(seat.machine),
        "cpus": list(seat.cpus),
    }


def _seat_in(said: dict[str, Any], row: int) -> Seat:
    seat = Seat(msgspec.convert(said["name"], str), row, msgspec.convert(said["seen_ms"], Int64))
    seat.boot = bytes.fromhex(said["boot"])
    seat.retired = [bytes.fromhex(boot) for boot in said["retired"]]
    clocks = (said["seq"], said["mono_us"], said["base_ms"])
    seat.seq, seat.mono_us, seat.base_ms = msgspec.convert(clocks, tuple[Int64, Int64, Int64])
    seat.uids = msgspec.convert(said["uids"], tuple[str, ...])
    seat.labels = msgspec.convert(said["labels"], dict[str, str])
    seat.annotation = msgspec.convert(said["annotation"], str)
    seat.machine = msgspec.convert(said["machine"], machine.Machine)
    seat.cpus = msgspec.convert(said["cpus"], tuple[Int64, ...])
    return seat
