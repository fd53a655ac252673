"""Acks: what a node says of a command or of itself, journaled, counted, remembered.

`node_agent.obey` makes one for every command and for each act of the local law. A duplicate gets
the answer that the command got before, also across restarts: the journal gives them back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

from node_agent.journal import Journal
from node_agent.journal_text import Line
from node_agent.lease import NodeLease, Verdict, order_of
from schemas.records import Ack, Command, Decider, Outcome

log = logging.getLogger(__name__)
Source = Literal["command", "local"]
NO_CPUSET = "no_actuator:cpuset"  # CPUs were named and the quota holds instead


class Answers:
    """One start of the agent; ``counts`` is (decider, outcome) -> acks."""

    def __init__(
        self,
        boot: str,
        journal: Journal,
        lease: NodeLease,
        mono_us: Callable[[], int],
        dry_run: bool,
    ) -> None:
        self.counts: dict[tuple[str, str], int] = {}
        self.journal_failures = 0
        self._boot, self._journal, self._lease = boot, journal, lease
        self._mono_us, self._dry_run = mono_us, dry_run
        self._seq = 0
        self._recall()

    def own(
        self,
        decider: Decider,
        outcome: Outcome,
        reason: str,
        *,
        asked_milli: int = -1,
        pods: tuple[str, ...] = (),
        dry_run: bool = False,
        command_id: str = "",
        terms: Mapping[str, int] | None = None,
    ) -> Ack:
        """An act of the node itself; no command stands behind it, or none that counts."""
        return self._count(
            Ack(
                node=self._lease.node,
                boot=self._boot,
                seq=self._next_seq(),
                mono_us=self._mono_us(),
                decider=decider,
                outcome=outcome,
                command_id=command_id,
                asked_milli=asked_milli,
                in_force_milli=self._in_force(),
                pods=pods,
                reason=reason,
                dry_run=dry_run or self._dry_run,
                terms=dict(terms or {}),
            )
        )

    def verdict(self, command: Command, verdict: Verdict) -> Ack:
        """A command that was judged and needs no act, or whose act is done."""
        if verdict.before is not None:
            self._note(self._line(command, "command", "duplicate", verdict.reason, ()))
            again = replace(
                verdict.before,
                outcome="duplicate",
                boot=self._boot,
                seq=self._next_seq(),
                mono_us=self._mono_us(),
            )
            return self._count(again)
        return self.outcome(command, verdict.outcome, verdict.reason)

    def outcome(
        self,
        command: Command,
        outcome: Outcome,
        reason: str,
        pods: tuple[str, ...] = (),
        more: Line | None = None,
    ) -> Ack:
        """What became of a central command; ``more`` is for the journal alone."""
        self._note(self._line(command, "command", outcome, reason, pods) | (more or {}))
        ack = Ack(
            node=self._lease.node,
            boot=self._boot,
            seq=self._next_seq(),
            mono_us=self._mono_us(),
            decider=command.decider,
            outcome=outcome,
            command_id=command.id,
            incarnation=command.cause.incarnation,
            offset=command.cause.offset,
            asked_milli=command.allow_milli,
            in_force_milli=self._in_force(),
            pods=pods,
            reason=reason,
            dry_run=command.dry_run or self._dry_run,
        )
        if command.id and reason != "wrong_node":
            self._lease.remember(ack)
        return self._count(ack)

    def unheard(self, command: Command, reason: str) -> Ack:
        """A command without a valid signature: nothing that it says is remembered."""
        return self.own(command.decider, "refused", reason, command_id=command.id)

    def local_eviction(
        self, command: Command, outcome: Outcome, reason: str, pods: tuple[str, ...]
    ) -> Ack:
        """What became of an eviction by the local law."""
        self._note(self._line(command, "local", outcome, reason, pods))
        return self.own(command.decider, outcome, reason or command.reason, pods=pods)

    def intent(self, command: Command, source: Source, pods: tuple[str, ...]) -> None:
        """Journal what is about to be done; a crash after it never repeats the act.

        Raises OSError when it cannot be kept: then nothing may be done either.
        """
        line = self._line(command, source, "failed", "interrupted", pods)
        self._journal.append({**line, "kind": "intent"})

    def in_force(self, reason: str) -> None:
        """Journal a new value in force."""
        self._note(
            {
                "kind": "in_force",
                "in_force_milli": self._lease.in_force_milli,
                "granted_milli": self._lease.granted_milli,
                "mono_us": self._mono_us(),
                "reason": reason,
            }
        )

    def _note(self, line: Line) -> None:
        """Keep a line; a disk that is full must not stop the agent from holding what it holds."""
        try:
            self._journal.append(line)
        except OSError as error:
            self.journal_failures += 1
            log.warning("journal: %s", error)

    def _line(
        self, command: Command, source: Source, outcome: str, reason: str, pods: tuple[str, ...]
    ) -> Line:
        order = order_of(command.cause)
        now = self._mono_us()
        return {
            "kind": "command",
            "id": command.id,
            "source": source,
            "decider": command.decider,
            "incarnation": order[0],
            "offset": order[1],
            "ordered": source == "command" and self._lease.newest.get(command.decider) == order,
            "asked_milli": command.allow_milli,
            "in_force_milli": self._in_force(),
            "granted_milli": self._lease.granted_milli,
            "pods": list(pods),
            "outcome": outcome,
            "reason": reason,
            "dry_run": command.dry_run or self._dry_run,
            "boot": self._boot,
            "mono_us": now,
            "log_ms": self._lease.clock.now_ms(now),
        }

    def _recall(self) -> None:
        """Order, answers, ceiling and cool-down of the start before."""
        state = self._journal.state
        self._lease.newest.update({d: (o[0], o[1]) for d, o in state.newest.items()})
        self._lease.granted_milli = state.granted_milli
        self._lease.evicted_mono_us = state.evicted_mono_us
        for line in state.commands.values():
            self._lease.remember(
                Ack(
                    node=self._lease.node,
                    boot=line["boot"],
                    seq=0,
                    mono_us=line["mono_us"],
                    decider=line["decider"],
                    outcome=line["outcome"],
                    command_id=line["id"],
                    incarnation=line["incarnation"],
                    offset=line["offset"],
                    asked_milli=line["asked_milli"],
                    in_force_milli=line["in_force_milli"],
                    pods=tuple(line["pods"]),
                    reason=line["reason"],
                    dry_run=line["dry_run"],
                )
            )

    def _in_force(self) -> int:
        return -1 if self._lease.in_force_milli is None else self._lease.in_force_milli

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq

    def _count(self, ack: Ack) -> Ack:
        key = (ack.decider, ack.outcome)
        self.counts[key] = self.counts.get(key, 0) + 1
        return ack
