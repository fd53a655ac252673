"""Outputs with their causes: the only place where records leave the law.

Deciders call these; `agents.step` sorts what they leave.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agents.log import LAW_VERSION, Output
from schemas.records import Cause, Command, Decider, Decision

if TYPE_CHECKING:
    from agents.state import PartitionState
    from agents.wave import Wave


def cause_of(state: PartitionState, offset: int, log_ms: int) -> Cause:
    """The record of `samples` that was folded, and the law it was folded under."""
    return Cause(
        state.incarnation, state.partition, offset, log_ms, state.policy_digest, LAW_VERSION
    )


def command(
    state: PartitionState, wave: Wave, at: int, decider: Decider, reason: str,
    terms: dict[str, int], out: list[Output], **what: Any,
) -> None:  # fmt: skip
    """A command to the node of the wave's sample ``at``, and the decision record beside it."""
    seat, entry, log_ms = wave.seats[at], wave.entries[at], wave.log_ms[at]
    offset, key = entry.offset, entry.sample.node
    cause = cause_of(state, offset, log_ms)
    said = Command(
        id=f"{state.incarnation}.{state.partition}.{offset}.{seat.name}.{decider}",
        node=seat.name,
        decider=decider,
        cause=cause,
        expires_log_ms=log_ms + state.law.loop.command_ttl_ms,
        reason=reason,
        terms=terms,
        **what,
    )
    columns = {name: [value] for name, value in terms.items()}
    decided = Decision(decider, cause, (seat.name,), (reason,), columns, (said.id,))
    out.append(Output("commands", key, said, offset, seat.name, decider))
    out.append(Output("decisions", key, decided, offset, seat.name, decider))


def decision(
    cause: Cause, decider: Decider, nodes: tuple[str, ...], outcome: tuple[str, ...],
    columns: dict[str, list[int]], out: list[Output],
) -> None:  # fmt: skip
    """One line of the audit log that goes with no command; a tick's has no key."""
    record = Decision(decider, cause, nodes, outcome, columns)
    out.append(Output("decisions", b"", record, cause.offset, "", decider))
