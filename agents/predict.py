"""Prediction in the loop: what prod pods use, minute by minute, and what of their requests is left.

`agents.step` calls `note` at each tick. `agents.capacity_terms` (mid) and `agents.reservation` ask
for `reclaimable` and `stays`; a pod's short-term reservation line comes from `short_lines`. Law:
`agents.prediction`. Off, nothing is kept, done or even imported: its tables are more than a MiB,
which counts on a node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agents import guards, law, windows
from agents.classes import HIGH, HOST, MID, TERMINATING
from agents.lending.amounts import sums
from agents.table import ABSENT, Array, Bools, Ints

if TYPE_CHECKING:
    from agents.prediction.held import Held
    from agents.state import PartitionState
    from agents.tick_view import TickView

PERIOD_MS = 60_000
"""One sample a pod a minute, as the peer trains."""
LEVEL_MS = 5 * PERIOD_MS
"""Short-term levels are weighed anew so often, the step that they were measured with, or when the
last minute rose above one.
"""
PPM = 1_000_000
PERCENT = 100
PERMILLE = 1000
MS_PER_S = 1000
MINUTE_S = PERIOD_MS // MS_PER_S


def note(state: PartitionState, view: TickView) -> None:
    """Train the prod pods and classes of the nodes whose moment this tick is, and ask them anew.

    Each node has its moment of the minute by a stable hash of its name, wherever its pods lie. A
    silent node's pods learn nothing. Nodes of which something changed are answered anew as well.
    """
    rule = state.law.prediction
    if not rule.enabled:
        state.models = None
        return
    from agents.prediction.held import Held  # noqa: PLC0415

    half_lives_ms = (rule.cpu_half_life_ms, rule.memory_half_life_ms)
    held = state.models
    if held is None or held.half_lives_ms != half_lives_ms:
        sizes = state.pods.size, state.nodes.size
        state.models = Held(half_lives_ms, view.log_ms, *sizes)
        return
    phase = state.nodes["phase"].take(view.rows)
    due = guards.due(view.log_ms, held.at_ms, phase, PERIOD_MS) & ~view.silent
    weigh = guards.due(view.log_ms, held.at_ms, phase, LEVEL_MS)
    held.at_ms = view.log_ms
    if due.any():
        _learn(state, held, view.rows[due], weigh[due], view.log_ms)
    asked = due | (held.nodes["looked"].take(view.rows) == 0)
    if asked.any():
        _answer(state, held, view.rows[asked], view.log_ms)


def forget_answers(state: PartitionState, rows: Ints | int | slice) -> None:
    """Something changed that answers of these nodes rest on: requests, pods, the rule."""
    if state.models is not None:
        state.models.nodes["looked"][rows] = 0


def reclaimable(state: PartitionState, rows: Ints, otherwise: Ints) -> Ints:
    """What prod pods leave of their requests on each of ``rows`` [r, 2], milli and bytes.

    ``otherwise`` [r, 2] stands while nothing is predicted.
    """
    return otherwise if state.models is None else state.models.nodes.take("left", rows)


def stays(state: PartitionState, rows: Ints) -> Ints:
    """The peak that stays with prod pods on each of ``rows`` [r, 2]; ABSENT: none is predicted."""
    if state.models is None:
        return np.full((len(rows), 2), ABSENT, dtype=np.int64)
    return state.models.nodes.take("stays", rows)


def short_lines(
    state: PartitionState, rows: Ints, slots: Ints, live: Array, otherwise: Ints
) -> Ints:  # fmt: skip
    """Short-term lines [n, 2] of pods ``slots`` on ``rows``: predicted where the policy wants it.

    Never below the maximum of the minute that runs. ``otherwise`` stands for pods that have no warm
    model, or that nobody reported for the whole window.
    """
    if state.models is None:
        return otherwise
    known = wants_short(state, rows) & (live[:, windows.SHORT] >= 0).all(axis=1)
    if not known.any():
        return otherwise
    level = state.models.pods.take("short", slots).astype(np.int64)
    known &= (level >= 0).all(axis=1)
    level = np.maximum(level, live[:, windows.NOW_SHORT])
    level[:, 1] *= windows.BYTES_PER_KIB
    return np.where(known[:, None], level, otherwise)


def wants_short(state: PartitionState, rows: Ints) -> Bools:
    """Where the policy takes the short-term reservation from the models [n]."""
    return law.choice(state, rows, "reservation.short_model", "predicted")


def _learn(state: PartitionState, held: Held, rows: Ints, weigh: Bools, log_ms: int) -> None:
    """A minute's samples of the pods and classes of ``rows``, and what they come to since.

    ``weigh`` [r]: nodes whose turn it is to have all their short-term levels anew.
    """
    from agents.prediction import fleet  # noqa: PLC0415
    from agents.prediction.held import classes_of  # noqa: PLC0415

    rule = state.law.prediction
    lives, epsilon = held.half_lives_ms, rule.epsilon_ppm / PPM
    peaks = (rule.cpu_peak_percent / PERCENT,), (rule.memory_peak_percent / PERCENT,)
    slots, owner = _pods(state, rows, HIGH)
    samples = [(held.pods, slots, _last_minute(state, rows.take(owner), slots))]
    if rule.class_models:
        use = _classes(state, rows, samples[0][2], owner)
        samples.append((held.classes, classes_of(rows), use))
    for bank, entities, usage in samples:
        models = bank.models(lives, epsilon)
        fleet.train(models, entities, usage, log_ms)
        begins = (bank["since_ms"].take(entities) < 0) & (usage != ABSENT).all(axis=1)
        bank["since_ms"][entities[begins]] = log_ms
        cpu, memory = fleet.ask(models, entities, *peaks)
        bank["peak"][entities] = np.concatenate([cpu, memory], axis=1)
    level = held.pods.take("short", slots)
    last = np.stack([samples[0][2][:, 0], windows.kib(samples[0][2][:, 1])], axis=1)
    stale = weigh.take(owner) | ((level < 0) | (last > level)).any(axis=1)
    _short(state, held, rows.take(owner[stale]), slots[stale], log_ms)


def _short(state: PartitionState, held: Held, rows: Ints, slots: Ints, log_ms: int) -> None:
    """Levels of the pods whose policy wants them and whose model is warm; none of the others."""
    from agents.prediction import short_term  # noqa: PLC0415

    rule = state.law.prediction
    since_ms = held.pods["since_ms"].take(slots)
    ready = wants_short(state, rows) & (since_ms >= 0) & (log_ms - since_ms > rule.cold_start_ms)
    held.pods["short"][slots[~ready]] = ABSENT
    slots = slots[ready]
    if not len(slots):
        return
    worth = short_term.Worth(
        price=float(rule.short_price),
        recent_share=rule.short_recent_permille / PERMILLE,
        peak_fraction=rule.short_peak_permille / PERMILLE,
        higher_share=rule.short_higher_permille / PERMILLE,
    )
    models = held.pods.models(held.half_lives_ms, rule.epsilon_ppm / PPM)
    recent = state.pods.take("minutes", slots).astype(np.int64)
    recent[:, 1] = np.where(recent[:, 1] < 0, ABSENT, recent[:, 1] * windows.BYTES_PER_KIB)
    cpu, memory = (
        short_term.reserve(kind, histograms, slots, recent[:, unit], worth)
        for unit, (kind, histograms) in enumerate(zip(models.kinds, models.state, strict=True))
    )
    held.pods["short"][slots] = np.stack([cpu, windows.kib(memory)], axis=1)


def _answer(state: PartitionState, held: Held, rows: Ints, log_ms: int) -> None:
    """What prod pods of ``rows`` leave of their requests, by the lesser of both models.

    A pod that nobody reported for the whole short window counts as one without a model, as it
    counts with its request in batch's need.
    """
    from agents.prediction import peak  # noqa: PLC0415
    from agents.prediction.held import CLASSES, classes_of  # noqa: PLC0415

    rule, nodes = state.law.prediction, state.nodes
    slots, owner = _pods(state, rows, HIGH)
    since_ms = held.pods["since_ms"].take(slots)
    age_ms = np.where(since_ms >= 0, log_ms - since_ms, 0)
    percentile = held.pods.take("peak", slots)
    percentile[state.pods.take("live", slots)[:, windows.SHORT] < 0] = ABSENT
    pods = peak.Pods(
        owner=owner,
        request=state.pods.take("request", slots),
        percentile=percentile,
        age_s=age_ms / MS_PER_S,
        ending=(state.pods["roles"].take(slots) & TERMINATING) > 0,
    )
    allocatable = np.maximum(nodes.take("capacity", rows) - nodes.take("reserved", rows), 0)
    how = rule.safety_margin_percent, rule.cold_start_ms / MS_PER_S
    answer = peak.by_pod(allocatable, pods, *how)
    if rule.class_models:
        each = held.classes.take("peak", classes_of(rows)).reshape(len(rows), CLASSES, 2)
        known = each.min(axis=(1, 2)) >= 0
        whole = np.where(known[:, None], np.add.reduce(each, axis=1, dtype=np.int64), ABSENT)
        answer = peak.lesser(answer, peak.by_class(allocatable, pods, whole, *how))
    held.nodes.put("left", rows, answer.reclaimable)
    held.nodes.put("stays", rows, answer.peak)
    held.nodes["looked"][rows] = 1


def _classes(state: PartitionState, rows: Ints, usage: Array, owner: Ints) -> Array:
    """[r x CLASSES, 2] milli and bytes of the last whole minute: the system's, and all prod pods'.

    Of the prod pods [n] ``usage`` and ``owner``; a pod that is not known counts nothing, as with
    the peer. High host applications are the system's. ABSENT where the system is not known.
    """
    nodes = state.nodes
    minute = (nodes["minute"].take(rows) - 1) % (windows.SECONDS // MINUTE_S)
    rings = nodes.take("ring", rows)[:, windows.SYSTEM]
    rings = rings.reshape(len(rows), 2, -1, MINUTE_S)
    system = rings[np.arange(len(rows)), :, minute].max(axis=2).astype(np.int64)
    known = (system >= 0).all(axis=1)
    system[:, 1] *= windows.BYTES_PER_KIB
    hosts, host_owner = _pods(state, rows, HIGH | HOST)
    hosted = np.maximum(_last_minute(state, rows.take(host_owner), hosts), 0)
    system += sums(hosted, host_owner, len(rows))
    prod = sums(np.maximum(usage, 0), owner, len(rows))
    both = np.stack([system, prod], axis=1)
    both[~known] = ABSENT
    return both.reshape(-1, 2)


def _pods(state: PartitionState, rows: Ints, role: int) -> tuple[Ints, Ints]:
    """(slots, owner) of the pods of ``rows`` above mid with these bits; owner indexes ``rows``."""
    slots, owner, _ = state.slots_of(rows)
    mine = (state.pods["roles"].take(slots) & (HIGH | MID | HOST)) == role
    return slots[mine], owner[mine]


def _last_minute(state: PartitionState, rows: Ints, slots: Ints) -> Array:
    """[n, 2] milli and bytes: the most that pods on ``rows`` [n] used in the last whole minute."""
    place = (state.nodes["minute"].take(rows) - 1) % windows.SLOTS
    usage = state.pods["minutes"][slots, :, place].astype(np.int64)
    known = (usage >= 0).all(axis=1)
    usage[:, 1] *= windows.BYTES_PER_KIB
    usage[~known] = ABSENT
    return usage
