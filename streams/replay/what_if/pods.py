"""The pods of one node as they would have been: who lives on, who has gone, who never came.

Part of `streams.replay.what_if.twin`. Raw CPU counters come in with every sample; what the law is
told of a pod is its raw counter and a shift, or a counter of the model's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from agents.classes import BEST_EFFORT, HOST, priority_class_of, roles_of
from schemas.packed import PackedSample
from schemas.records import Inventory, PodFact
from streams.replay.what_if import samples
from streams.replay.what_if.model import CORE_MILLI, split
from streams.replay.what_if.samples import POD_CPU, POD_MEMORY, Extra

AGO_US = 10_000_000
"""What a pod uses is taken over so long a time at least, where there is so much."""
Offer = tuple[int, ...]
"""What is offered on a node: batch milli and bytes, mid milli and bytes."""


@dataclass(slots=True)
class Living:
    """A pod that was told to leave and would not have been."""

    fact: PodFact
    wants_milli: int
    memory_bytes: int
    cpu_us: int


@dataclass(frozen=True, slots=True)
class Readings:
    """CPU counters of best-effort pods by uid at one moment."""

    mono_us: int
    cpu_us: dict[str, int]


@dataclass(slots=True)
class Pods:
    """``gone_ms``: log time from which the other policy's pods are gone, though recorded."""

    rev: int = -1
    facts: tuple[PodFact, ...] = ()
    living: dict[str, Living] = field(default_factory=dict)
    gone_ms: dict[str, int] = field(default_factory=dict)
    _places: dict[str, int] = field(default_factory=dict)
    _mine: tuple[tuple[str, int], ...] = ()  # of the best-effort group, with their places
    _now: Readings | None = None
    _then: Readings | None = None
    _known: bool = False  # whether the newest sample is of the pod set that is known
    _deltas: dict[str, int] = field(default_factory=dict)
    _rates: dict[str, int] = field(default_factory=dict)
    _removed_us: int = 0  # by estimate, since the counters were last read
    _shift_us: dict[str, int] = field(default_factory=dict)
    _frozen_us: dict[str, int] = field(default_factory=dict)
    _memory: dict[str, int] = field(default_factory=dict)
    _keep: list[int] | None = None  # places of the recorded pods that the law knows; None: all
    _extra: list[str] = field(default_factory=list)

    def known(self, record: Inventory) -> None:
        """What the node said of its pods before, or says now."""
        self.rev, self.facts = record.pods_rev, record.pods
        self._places = {pod.uid: place for place, pod in enumerate(record.pods)}
        self._mine = tuple(
            (pod.uid, place) for place, pod in enumerate(record.pods) if is_best_effort(pod)
        )

    def admit(self, record: Inventory, log_ms: int) -> Inventory:
        """The inventory that the other policy's law admits in place of ``record``.

        Who is gone is left out as soon as the law has seen him once: a first reading tells nothing.
        """
        before = self._places
        self.known(record)
        left = {uid for uid in self.gone_ms if not self.here(uid, log_ms)}
        for uid in left - self._places.keys():
            self.living.pop(uid, None)
        self._extra = [uid for uid in self.living if uid not in self._places]
        kept = [
            place for uid, place in self._places.items() if uid not in left or uid not in before
        ]
        self._keep = None if len(kept) == len(record.pods) else kept
        if self._keep is None and not self._extra:
            return record
        pods = [record.pods[i] for i in kept] + [self.living[uid].fact for uid in self._extra]
        return replace(record, pods=tuple(pods))

    def turn_away(self, record: Inventory, was: Offer, would: Offer, log_ms: int) -> bool:
        """Pods that came because of what was offered, and do not fit what would have been.

        Asked before `admit`. Where what is there does not fit what was offered either, the
        scheduler does not go by offers, and whoever came stays.
        """
        pods = [pod for pod in record.pods if is_best_effort(pod)]
        asked, held = [0] * len(was), [0] * len(would)
        for pod in pods:
            _add(asked, pod)
        if _exceeds(asked, was):
            return False
        stays = [pod for pod in pods if pod.uid in self._places and pod.uid not in self.gone_ms]
        for pod in (*stays, *(one.fact for one in self.living.values())):
            _add(held, pod)
        turned = False
        for pod in pods:
            if pod.uid in self._places or pod.uid in self.gone_ms:
                continue
            wanted = list(held)
            _add(wanted, pod)
            if _exceeds(wanted, would):
                self.gone_ms[pod.uid] = log_ms
                turned = True
            else:
                held = wanted
        return turned

    def live_on(self, uid: str, wants_milli: int, used_milli: int) -> bool:
        """It was told to leave, and would not have been; the group wanted and used so much."""
        place = self._places.get(uid)
        if place is None or uid in self.living or uid in self.gone_ms:
            return False
        rate = self._rate(uid)
        rate = rate * wants_milli // used_milli if used_milli else rate
        counter = self._now.cpu_us.get(uid, 0) if self._now is not None else 0
        shifted = counter + self._shift_us.get(uid, 0)
        self.living[uid] = Living(self.facts[place], rate, self._memory.get(uid, 0), shifted)
        return True

    def stayed(self, uid: str) -> None:
        """It was told to leave and did not: what was recorded of it goes on."""
        if uid in self._places:
            self.living.pop(uid, None)

    def here(self, uid: str, log_ms: int) -> bool:
        """Whether a pod would have been there; also one that the other policy told to leave."""
        return self.gone_ms.get(uid, log_ms + 1) > log_ms

    def restarted(self) -> None:
        """The counters of a new start of the agent have nothing to do with the old ones."""
        self._now = self._then = None
        self._deltas, self._removed_us = {}, 0
        self._shift_us.clear()
        self._frozen_us.clear()

    def note(self, sample: PackedSample) -> None:
        """What its pods use and hold, as recorded."""
        self._known = (sample.pods_rev, sample.pods) == (self.rev, len(self.facts))
        self._deltas = {}
        if not self._known:
            return
        read, held = (samples.read_pods(sample, name) for name in (POD_CPU, POD_MEMORY))
        cpu: dict[str, int] = {}
        for uid, place in self._mine:
            us, size = read[place], held[place]
            if us is not None:
                cpu[uid] = us
            if size is not None:
                self._memory[uid] = size
        before, self._now = self._now, Readings(sample.mono_us, cpu)
        if before is None:
            self._then = self._now
            return
        self._deltas = {
            uid: max(cpu[uid] - before.cpu_us[uid], 0) for uid in cpu.keys() & before.cpu_us.keys()
        }
        elapsed_us = max(sample.mono_us - before.mono_us, 1)
        self._rates = {uid: us * CORE_MILLI // elapsed_us for uid, us in self._deltas.items()}
        if self._then is None or sample.mono_us - self._then.mono_us > 2 * AGO_US:
            self._then = before

    def less_us(self, elapsed_us: int, log_ms: int) -> int:
        """CPU time in this interval of recorded pods that are gone or have a use of their own.

        While the pod set is not known, by their last rates; that is settled once it is.
        """
        apart = self._apart(log_ms)
        if not self._known:
            less = sum(self._rates.get(uid, 0) for uid in apart) * elapsed_us // CORE_MILLI
            self._removed_us += less
            return less
        less = max(sum(self._deltas.get(uid, 0) for uid in apart) - self._removed_us, 0)
        self._removed_us = 0
        return less

    def alive(self, log_ms: int) -> list[Living]:
        """Those that live on and are there."""
        return [pod for uid, pod in self.living.items() if self.here(uid, log_ms)]

    def share_out(self, was_milli: int, would_milli: int, log_ms: int) -> None:
        """What the other best-effort pods used would have been so much instead; shift them so."""
        apart = self._apart(log_ms)
        mine = [uid for uid, _ in self._mine if uid in self._deltas and uid not in apart]
        deltas = [self._deltas[uid] for uid in mine]
        total = sum(deltas) * would_milli // was_milli if was_milli else 0
        for uid, share, delta in zip(mine, split(total, deltas), deltas, strict=True):
            if share != delta:
                self._shift_us[uid] = self._shift_us.get(uid, 0) + share - delta

    def more_bytes(self, log_ms: int) -> int:
        """Memory that would have been held beyond what was recorded."""
        held = sum(pod.memory_bytes for pod in self.alive(log_ms))
        return held - sum(self._memory.get(uid, 0) for uid in self._apart(log_ms))

    def written(self, sample: PackedSample, node: dict[int, int], log_ms: int) -> PackedSample:
        """A sample with the node's values, and with the pods as they would have been."""
        if not self._known or self._now is None:  # of a pod set that the law does not know either
            return samples.written(sample, node, {})
        cpu: dict[int, int] = {}
        memory: dict[int, int] = {}
        for uid, raw in self._now.cpu_us.items():
            place, living, shift = self._places[uid], self.living.get(uid), self._shift_us.get(uid)
            if uid in self.gone_ms and not self.here(uid, log_ms):
                before = raw - self._deltas.get(uid, 0) + (shift or 0)
                last = before if living is None else living.cpu_us
                cpu[place] = self._frozen_us.setdefault(uid, last)
                memory[place] = 0
            elif living is not None:
                cpu[place], memory[place] = living.cpu_us, living.memory_bytes
            elif shift is not None:
                cpu[place] = raw + shift
        changed = samples.written(sample, node, {POD_CPU: cpu, POD_MEMORY: memory})
        if self._keep is None and not self._extra:
            return changed
        keep = list(range(len(self.facts))) if self._keep is None else self._keep
        extra = [
            Extra(self.living[u].cpu_us, self.living[u].memory_bytes if self.here(u, log_ms) else 0)
            for u in self._extra
        ]
        return samples.with_pods(changed, keep, extra)

    def _apart(self, log_ms: int) -> set[str]:
        """Recorded pods whose recorded use does not count."""
        if not self.gone_ms and not self.living:
            return set()
        gone = {uid for uid in self.gone_ms if not self.here(uid, log_ms)}
        return (gone | self.living.keys()) & self._places.keys()

    def _rate(self, uid: str) -> int:
        """Millicores that a recorded pod used lately."""
        now, then = self._now, self._then
        if now is None or then is None or then.mono_us >= now.mono_us:
            return 0
        if uid not in now.cpu_us or uid not in then.cpu_us:
            return self._rates.get(uid, 0)
        grown = max(now.cpu_us[uid] - then.cpu_us[uid], 0)
        return grown * CORE_MILLI // (now.mono_us - then.mono_us)


def is_best_effort(pod: PodFact) -> bool:
    """Whether a pod belongs to the best-effort group."""
    return roles_of(pod) & (BEST_EFFORT | HOST) == BEST_EFFORT


def _add(sums: list[int], pod: PodFact) -> None:
    """What a pod asks for, to that of its kind: batch milli and bytes, mid milli and bytes."""
    at = 2 if priority_class_of(pod) == "mid" else 0
    sums[at] += pod.cpu_request_milli
    sums[at + 1] += pod.memory_request_bytes


def _exceeds(asked: Iterable[int], offer: Offer) -> bool:
    return any(wanted > there for wanted, there in zip(asked, offer, strict=True))
