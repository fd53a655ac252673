"""Outputs with their causes: the only place where records leave the law.

Deciders call these; `agents.step` sorts what they leave.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agents.log import LAW_VERSION, Output
from schemas.records import Cause, Command, Decider, Decision

if TYPE_CHECKING:
    from agents.state import PartitionState, Seat
    from agents.wave import Wave


def cause_of(state: PartitionState, offset: int, log_ms: int) -> Cause:
    """The record of `samples` that was folded, and the law it was folded under."""
    return Cause(
        state.incarnation, state.partition, offset, log_ms, state.policy_digest, LAW_VERSION
    )


def command(
    state: PartitionState, wave: Wave, at: int, decider: Decider, reason: str,
    terms: dict[str, int], out: list[Output], told: dict[str, int] | None = None, **what: Any,
) -> None:  # fmt: skip
    """A command to the node of the wave's sample ``at``, and the decision record beside it.

    ``told``: more terms, for the audit log alone.
    """
    seat, entry = wave.seats[at], wave.entries[at]
    cause = cause_of(state, entry.offset, wave.log_ms[at])
    said = order(state, seat, cause, decider, reason, terms, out, **what)
    columns = {name: [value] for name, value in (terms | (told or {})).items()}
    decided = Decision(decider, cause, (seat.name,), (reason,), columns, (said,))
    out.append(Output("decisions", entry.sample.node, decided, entry.offset, seat.name, decider))


def order(
    state: PartitionState, seat: Seat, cause: Cause, decider: Decider, reason: str,
    terms: dict[str, int], out: list[Output], **what: Any,
) -> str:  # fmt: skip
    """A command to one node without a decision record; returns its id."""
    said = Command(
        id=f"{state.incarnation}.{state.partition}.{cause.offset}.{seat.name}.{decider}",
        node=seat.name,
        decider=decider,
        cause=cause,
        expires_log_ms=cause.log_ms + state.law.loop.command_ttl_ms,
        reason=reason,
        terms=terms,
        **what,
    )
    out.append(Output("commands", seat.name.encode(), said, cause.offset, seat.name, decider))
    return said.id


def decision(
    cause: Cause, decider: Decider, nodes: tuple[str, ...], outcome: tuple[str, ...],
    columns: dict[str, list[int]], out: list[Output], command_ids: tuple[str, ...] = (),
) -> None:  # fmt: skip
    """One line of the audit log, a tick's or one that goes with no command; it has no key."""
    record = Decision(decider, cause, nodes, outcome, columns, command_ids)
    out.append(Output("decisions", b"", record, cause.offset, "", decider))
