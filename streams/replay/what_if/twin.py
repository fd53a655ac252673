"""One node as it would have been: its samples and its pod set under the other policy.

`streams.replay.what_if.supposed` hands it every sample and inventory of the node, in log order.
Until something touches what runs there (`touched`) all passes through unchanged. Raw counters are
kept as they were and shifted, so that rates come out of the live fold as from any node.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from schemas.packed import PackedSample
from schemas.records import Inventory
from streams.replay.what_if import model, samples
from streams.replay.what_if.model import CORE_MILLI, NO_BOUND, Interval, Wish
from streams.replay.what_if.pods import Offer, Pods
from streams.replay.what_if.samples import Values
from streams.replay.what_if.standing import Bound

LONGEST_US = 60_000_000
"""Between two samples that lie further apart nothing is known: a gap is not calm."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One interval of one node: as recorded, and as it would have been."""

    interval: Interval
    wants_milli: int  # by all best-effort pods that would have been there
    used_milli: int  # by them

    @property
    def node_milli(self) -> int:
        """What the whole node would have used."""
        return self.interval.others_milli + self.used_milli


@dataclass(slots=True)
class Twin:
    """See the module."""

    name: str
    capacity_milli: int = -1
    touched: bool = False
    wish: Wish = field(default_factory=Wish)
    pods: Pods = field(default_factory=Pods)
    _boot: bytes = b""
    _retired: set[bytes] = field(default_factory=set)
    _seq: int = 0
    _mono_us: int = -1
    _last: Values = ()
    _shift_us: int = 0
    _group: tuple[int, int] = (0, 0)  # millicores wanted and used in the last interval

    def known(self, record: Inventory) -> None:
        """What the node said of itself before, or says now."""
        self.capacity_milli = max(record.cpu_capacity_milli, -1)
        self.pods.known(record)

    def admit(
        self, record: Inventory, offers: tuple[Offer, Offer] | None, log_ms: int
    ) -> Inventory:
        """The inventory that the other policy's law admits in place of ``record``.

        ``offers``: what was and what would have been offered, where they differ.
        """
        self.capacity_milli = max(record.cpu_capacity_milli, -1)
        if offers is not None and self.pods.turn_away(record, *offers, log_ms):
            self.touched = True
        return self.pods.admit(record, log_ms)

    def live_on(self, uid: str) -> None:
        """A pod was told to leave, and would not have been."""
        if self.pods.live_on(uid, *self._group):
            self.touched = True

    def leave(self, uid: str, gone_ms: int) -> None:
        """The other policy tells a pod to leave; at ``gone_ms`` it is gone."""
        self.pods.gone_ms.setdefault(uid, gone_ms)
        self.touched = True

    def look(
        self, sample: PackedSample, said: Bound | None
    ) -> tuple[Values, Interval | None]:  # fmt: skip
        """Raw values of a sample, and the interval since the last; None where it has no rate.

        ``said``: the bound that was said last, for what the sample does not tell.
        """
        values = samples.read(sample)
        if sample.boot in self._retired:
            return values, None
        if sample.boot != self._boot:
            self._begin(sample.boot)
        elif sample.seq <= self._seq or sample.mono_us <= self._mono_us:
            return values, None
        found = self._interval(sample, values, said)
        self._seq = sample.seq
        if None not in values[: samples.THROTTLED]:
            self._last, self._mono_us = values, sample.mono_us
        return values, found

    def asis(self, interval: Interval) -> Seen:
        """An interval as it was recorded."""
        wants = self.wish.of(interval, self._mono_us)
        self._group = (wants, interval.used_milli)
        return Seen(interval, wants, interval.used_milli)

    def would(
        self, sample: PackedSample, values: Values, interval: Interval | None,
        bound: Bound | None, log_ms: int, *, same: bool,
    ) -> tuple[PackedSample, Seen | None]:  # fmt: skip
        """The sample as it would have been under ``bound``, and what it shows.

        ``same``: both policies said so, and what was in force stays in force.
        """
        self.pods.note(sample)
        seen = None
        if interval is not None:
            held = interval.bound_milli if same else amount_of(bound)
            seen = self._moved(interval, held, log_ms)
        more = self.pods.more_bytes(log_ms)
        node = {
            samples.BUSY: (values[samples.BUSY] or 0) + self._shift_us,
            samples.BEST_EFFORT: (values[samples.BEST_EFFORT] or 0) + self._shift_us,
            samples.AVAILABLE: max((values[samples.AVAILABLE] or 0) - more, 1),
            samples.LIMITED: max((values[samples.LIMITED] or 0) + more, 0),
        }
        if not same:
            by_quota = bound is not None and not bound.cpus
            node[samples.QUOTA] = amount_of(bound) if by_quota else NO_BOUND
        return self.pods.written(sample, node, log_ms), seen

    def _begin(self, boot: bytes) -> None:
        """A new start of the agent; its counters have nothing to do with the old ones."""
        if self._boot:
            self._retired.add(self._boot)
        self._boot, self._seq, self._mono_us, self._last = boot, 0, -1, ()
        self._shift_us = 0
        self.pods.restarted()

    def _interval(
        self, sample: PackedSample, values: Values, said: Bound | None
    ) -> Interval | None:  # fmt: skip
        busy, used, throttled, quota, *_ = values
        elapsed_us = sample.mono_us - self._mono_us
        if not self._last or busy is None or used is None or elapsed_us > LONGEST_US:
            return None
        last_busy, last_used, last_throttled = self._last[: samples.THROTTLED + 1]
        assert last_busy is not None and last_used is not None
        if busy < last_busy or used < last_used or self.capacity_milli < 0:
            return None
        best_effort = (used - last_used) * CORE_MILLI // elapsed_us
        whole = (busy - last_busy) * CORE_MILLI // elapsed_us
        waited = 0
        if throttled is not None and last_throttled is not None:
            waited = max(throttled - last_throttled, 0)
        bound = NO_BOUND if quota is None else quota
        if bound < 0 and said is not None and (quota is None or said.cpus):
            bound = amount_of(said)
        others = max(whole - best_effort, 0)
        return Interval(elapsed_us, best_effort, others, waited, bound, self.capacity_milli)

    def _moved(self, interval: Interval, bound_milli: int, log_ms: int) -> Seen:
        """Shift all counters by what would have been used more or less in this interval."""
        elapsed_us = interval.elapsed_us
        less = self.pods.less_us(elapsed_us, log_ms) * CORE_MILLI // elapsed_us
        less = min(less, interval.used_milli)
        alive = self.pods.alive(log_ms)
        more = sum(pod.wants_milli for pod in alive)
        wants = self.wish.of(interval, self._mono_us)
        used = model.use(interval, wants, bound_milli, more, less)
        self._shift_us += (used - interval.used_milli) * elapsed_us // CORE_MILLI
        rest_wants = model.left_of(interval, wants, less)
        rest, *parts = model.split(used, [rest_wants, *(pod.wants_milli for pod in alive)])
        for pod, part in zip(alive, parts, strict=True):
            pod.cpu_us += part * elapsed_us // CORE_MILLI
        self.pods.share_out(interval.used_milli - less, rest, log_ms)
        total = max(rest_wants + more, used)
        self._group = (total, used)
        return Seen(interval, total, used)


def amount_of(bound: Bound | None) -> int:
    """Millicores that a bound allows; `NO_BOUND` for none."""
    if bound is None or bound.free:
        return NO_BOUND
    return len(bound.cpus) * CORE_MILLI if bound.cpus else bound.allow_milli
