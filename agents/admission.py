"""Which samples are folded, and when they happened: (boot, seq) and the node's monotonic clock.

`agents.step` asks for each sample in log order. A node's wall clock is never looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agents.log import Output, SampleEntry
from agents.state import PartitionState, Seat
from schemas.packed import PackedSample
from schemas.records import DeadLetter

if TYPE_CHECKING:
    from agents.wave import Wave

CLOCK_LEAD_MS = 600_000
"""A monotonic clock may run ahead of broker time by so much within one boot; more is refused."""
RETIRED_KEPT = 1_024
"""Superseded starts remembered for each node."""


def admit(state: PartitionState, entry: SampleEntry, wave: Wave, out: list[Output]) -> None:
    """Put the sample into the wave, or count it, or answer with a dead letter."""
    sample = entry.sample
    seat = state.seats.get(sample.node)
    if seat is None:
        try:
            seat = state.seat_of(sample.node)
        except UnicodeDecodeError:
            _refuse(state, entry, "broken_packed", "the node name is not UTF-8", out)
            return
    mono_ms = sample.mono_us // 1000
    lag_ms = state.log_ms - mono_ms
    fresh = sample.boot != seat.boot
    reason = _reason_against(seat, sample, lag_ms, fresh)
    if reason:
        _drop(state, entry, reason, out)
        return
    if fresh:
        _supersede(seat, sample.boot)
        seat.base_ms = lag_ms
    elif sample.seq != seat.seq + 1:
        state.counts["gap"] += sample.seq - seat.seq - 1
    seat.seq = sample.seq
    seat.mono_us = sample.mono_us
    seat.base_ms = min(seat.base_ms, lag_ms)
    seat.seen_ms = state.log_ms
    wave.add(seat, entry, state.log_ms, mono_ms + seat.base_ms, fresh)


def _reason_against(seat: Seat, sample: PackedSample, lag_ms: int, fresh: bool) -> str:
    if fresh:
        return "superseded_boot" if sample.boot in seat.retired else ""
    if sample.seq <= seat.seq:
        return "duplicate"
    if sample.mono_us <= seat.mono_us:
        return "backward_clock"
    return "future_clock" if lag_ms < seat.base_ms - CLOCK_LEAD_MS else ""


def _supersede(seat: Seat, boot: bytes) -> None:
    if seat.boot:
        seat.retired.append(seat.boot)
        del seat.retired[:-RETIRED_KEPT]
    seat.boot = boot


def _drop(state: PartitionState, entry: SampleEntry, reason: str, out: list[Output]) -> None:
    """A duplicate is what at-least-once delivery brings: counted, no more."""
    if reason == "duplicate":
        state.counts[reason] += 1
    else:
        sample = entry.sample
        _refuse(state, entry, reason, f"boot {sample.boot.hex()} seq {sample.seq}", out)


def _refuse(
    state: PartitionState, entry: SampleEntry, reason: str, detail: str, out: list[Output]
) -> None:
    sample = entry.sample
    state.counts[reason] += 1
    letter = DeadLetter(
        topic="samples",
        partition=state.partition,
        offset=entry.offset,
        reason=reason,
        detail=detail,
        key_hex=sample.node.hex(),
        size_bytes=sample.size_bytes,
    )
    node = sample.node.decode(errors="backslashreplace")
    out.append(Output("dead-letters", b"samples", letter, entry.offset, node, "admission"))
