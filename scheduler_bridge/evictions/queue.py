"""Which pods are to go, each once, the most urgent first, until when. Pure; time is log time.

The executor folds in what workers ordered (`commands`), what nodes handed over (`acks`) and what
became of it (the bridge's own `evictions`), in any order of topics and as often as it likes, so
that a restart or another instance knows the same. An ack alone moves nobody: only a pod that a
worker's own command named is asked for, and that command may be signed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar, get_args

from schemas.records import Ack, Command, EvictionReport, EvictionSource

K = TypeVar("K")
URGENCY: dict[str, int] = {name: place for place, name in enumerate(get_args(EvictionSource))}
LAST_WORDS = ("evicted", "gone", "refused", "expired")
EVICTORS = ("evict_memory", "evict_cpu")
PODS_MAX = 4096
"""Of one command or ack; a node has fewer."""


@dataclass(frozen=True, slots=True)
class Request:
    """One pod that is to go. ``id`` is the command's, or a name of the bridge's own."""

    id: str
    uid: str
    node: str
    source: EvictionSource
    why: str
    asked_ms: int
    until_ms: int
    order: tuple[int, int] = (0, 0)
    dry_run: bool = False
    terms: dict[str, int] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        return self.id, self.uid


@dataclass(slots=True)
class Pending:
    """A request that has no last word; ``waiting_for`` "" before anything stood against it."""

    request: Request
    tries: int = 0
    not_before_ms: int = 0
    waiting_for: str = ""
    said: str = ""  # what it waits for, as it was reported last


class Queue:
    """``expire_ms``: what was handed over is given up after so long; nodes give up after 60 s.

    ``dry_run``: what a dry run said is a last word for another one only.
    """

    def __init__(self, expire_ms: int = 60_000, *, dry_run: bool = False) -> None:
        self.pending: dict[str, Pending] = {}
        self.superseded: list[Request] = []  # by a newer request; the executor says so
        self._expire_ms, self._dry_run = expire_ms, dry_run
        self._commands: dict[str, tuple[int, Command]] = {}
        self._handed: dict[str, tuple[int, Ack]] = {}  # without their command so far
        self._closed: dict[tuple[str, str], int] = {}
        self._ended: dict[str, int] = {}  # by the node: command id -> log time

    def fold_command(self, command: Command, log_ms: int) -> None:
        """An order of a worker; only evictions in earnest are kept."""
        if command.decider not in EVICTORS or command.dry_run or not command.pods:
            return
        self._commands[command.id] = (log_ms, command)
        waiting = self._handed.pop(command.id, None)
        if waiting is not None:
            self._hand_over(command, waiting[1], waiting[0])

    def fold_ack(self, ack: Ack, log_ms: int) -> None:
        """A node hands pods over, or says how it ended."""
        if ack.decider not in EVICTORS or not ack.command_id or ack.dry_run:
            return
        if ack.outcome == "handed_over":
            known = self._commands.get(ack.command_id)
            if known is None:
                self._handed[ack.command_id] = (log_ms, ack)
            else:
                self._hand_over(known[1], ack, log_ms)
        elif ack.outcome in ("applied", "failed", "refused"):
            self._end(ack, log_ms)

    def fold_report(self, report: EvictionReport, log_ms: int) -> None:
        """What the bridge said: a last word closes the request for good."""
        if report.dry_run and not self._dry_run:
            return
        if report.outcome in LAST_WORDS:
            self.close((report.command_id, report.pod), log_ms)
        elif (found := self.pending.get(report.pod)) and found.request.id == report.command_id:
            found.said = report.reason
            found.tries = max(found.tries, report.tries)

    def ask(self, request: Request) -> bool:
        """Take a request; False when it is known, closed, or less than what is pending.

        For one pod a more urgent source wins, and within a source the newest.
        """
        if request.key in self._closed or request.id in self._ended:
            return False
        found = self.pending.get(request.uid)
        if found is not None:
            old = found.request
            if old.id == request.id:
                return False
            ranks = URGENCY[request.source], URGENCY[old.source]
            if ranks[0] > ranks[1] or (ranks[0] == ranks[1] and request.order <= old.order):
                return False
            self.superseded.append(old)
        self.pending[request.uid] = Pending(request)
        return True

    def close(self, key: tuple[str, str], log_ms: int) -> None:
        """This request has its last word."""
        self._closed[key] = log_ms
        found = self.pending.get(key[1])
        if found is not None and found.request.id == key[0]:
            del self.pending[key[1]]

    def due(self, now_ms: int) -> list[Pending]:
        """Who may be asked for now, the most urgent first: source, then deadline, then uid."""
        ready = [
            each
            for each in self.pending.values()
            if each.not_before_ms <= now_ms < each.request.until_ms
        ]
        return sorted(ready, key=_urgency)

    def beaten(self) -> list[Request]:
        """Those that lost against a newer or more urgent request and had no answer; said once."""
        unanswered = {each.key: each for each in self.superseded if each.key not in self._closed}
        self.superseded.clear()
        return list(unanswered.values())

    def expired(self, now_ms: int) -> list[Pending]:
        """Whose time is over, in a total order."""
        late = [each for each in self.pending.values() if each.request.until_ms <= now_ms]
        return sorted(late, key=_urgency)

    def forget(self, now_ms: int) -> None:
        """Drop what nobody can ask for again: the memory is bounded by the traffic of a while."""
        oldest = now_ms - 2 * self._expire_ms
        _drop(self._commands, [k for k, (at, _) in self._commands.items() if at < oldest])
        _drop(self._handed, [k for k, (at, _) in self._handed.items() if at < oldest])
        _drop(self._closed, [k for k, at in self._closed.items() if at < oldest])
        _drop(self._ended, [k for k, at in self._ended.items() if at < oldest])
        self.superseded = [each for each in self.superseded if each.until_ms >= oldest]

    def _hand_over(self, command: Command, ack: Ack, log_ms: int) -> None:
        """What both name, on the node of both."""
        if ack.node != command.node:
            return
        ordered = set(command.pods[:PODS_MAX])
        source: EvictionSource = "evict_memory" if ack.decider == "evict_memory" else "evict_cpu"
        if command.decider != source:
            return
        for uid in ack.pods[:PODS_MAX]:
            if uid not in ordered:
                continue
            request = Request(
                id=command.id,
                uid=uid,
                node=command.node,
                source=source,
                why=command.reason,
                asked_ms=log_ms,
                until_ms=log_ms + self._expire_ms,
                order=(command.cause.incarnation, command.cause.offset),
            )
            if not self.ask(request) and self._is_another(request):
                self.superseded.append(request)

    def _is_another(self, request: Request) -> bool:
        """Whether it lost against another request, and was not answered."""
        found = self.pending.get(request.uid)
        answered = request.key in self._closed or request.id in self._ended
        return found is not None and found.request.id != request.id and not answered

    def _end(self, ack: Ack, log_ms: int) -> None:
        """The node looks after it no longer: nothing of this order is asked for any more."""
        self._handed.pop(ack.command_id, None)
        self._ended[ack.command_id] = log_ms
        for uid in [u for u, p in self.pending.items() if p.request.id == ack.command_id]:
            found = self.pending.pop(uid)
            self._closed[found.request.key] = log_ms


def _urgency(pending: Pending) -> tuple[int, int, str]:
    request = pending.request
    return URGENCY[request.source], request.until_ms, request.uid


def _drop(kept: dict[K, Any], keys: list[K]) -> None:
    for key in keys:
        del kept[key]
