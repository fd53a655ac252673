"""What holds on this node: the standing command, its lease, the local law, and broker time.

Pure: the clock comes in as ``mono_us``, nothing is read or written; `node_agent.obey` asks, acts
and reports back. The rules:

- In force is the lower of command and local law, never under the floor.
- A command may lower at any time, an expired one too. Raising needs a live one: not expired by
  broker time, and no older on this node's monotonic clock than its own time to live.
- A `Lease` of the partition renews the standing command that it is not older than.
- When the lease lapses the local law alone holds, under the last ceiling that was granted.
- Without a policy best-effort work stays at the floor and nobody is evicted. What policy switched
  off on this node is not done, however lately it was ordered.
- A cut by the reflex bounds what both say, until it is over and the local law has been asked since.
- Order is (incarnation, offset) per decider: lower is refused, the same command again is a
  duplicate, answered as before and without effect.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from node_agent.actuators.pods import refusal
from schemas.policy import Policy, Reflex
from schemas.records import Ack, Cause, Command, Lease, PodFact

Order = tuple[int, int]
ANSWERS_KEPT = 1024
SIGHTINGS = 8  # of broker time; a few seconds of samples
LOCAL_SILENT_US = 30_000_000  # no answer of the local law for so long: the floor holds
OBEYED = ("suppress", "evict_memory", "evict_cpu", "isolate")
REFLEX = "reflex"  # reason of a bound that nobody but the node's reflex asked for
NO_ACT = ("dry_run",)  # reasons of a command that is applied by doing nothing


class BrokerClock:
    """Broker time from the monotonic clock: mono + min(append time - mono at sending).

    Append happens after sending, so the smallest difference seen is the closest, and it errs
    towards a later time: a command is never held to be live for longer than it is. Only the last
    sightings count: a machine that was halted has a monotonic clock that fell behind for good.
    """

    def __init__(self) -> None:
        self._ahead_us: deque[int] = deque(maxlen=SIGHTINGS)

    def acknowledged(self, append_ms: int, sent_mono_us: int) -> None:
        """A record sent at ``sent_mono_us`` was appended at ``append_ms`` of the broker."""
        self._ahead_us.append(append_ms * 1000 - sent_mono_us)

    def now_ms(self, mono_us: int) -> int | None:
        """Broker time now; None before the first acknowledged record."""
        return (mono_us + min(self._ahead_us)) // 1000 if self._ahead_us else None


@dataclass(frozen=True, slots=True)
class Standing:
    """The newest command of its kind and until when it is renewed; ``allow_milli`` of suppress."""

    order: Order
    allow_milli: int
    expires_log_ms: int
    renewed_mono_us: int
    ttl_us: int
    cpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do with a command. ``evict`` names pods only when ``outcome`` is applied."""

    outcome: Literal["applied", "refused", "duplicate"]
    reason: str = ""
    evict: tuple[str, ...] = ()
    before: Ack | None = None  # the earlier answer of a duplicate


@dataclass(frozen=True, slots=True)
class Target:
    """What shall be in force; ``allow_milli`` None: no suppression, original values.

    With ``cpus`` best-effort work runs on these and no quota is set; who cannot bind it sets the
    quota. ``both``: within these CPUs the quota holds too.
    """

    allow_milli: int | None
    reason: str
    cpus: tuple[int, ...] = ()
    both: bool = False


@dataclass(slots=True)
class NodeLease:
    """The state machine; ``granted_milli`` is the last ceiling a live command granted."""

    node: str
    floor_milli: int
    clock: BrokerClock = field(default_factory=BrokerClock)
    policy: Policy | None = None
    standing: Standing | None = None
    isolated: Standing | None = None
    granted_milli: int | None = None
    granted_cpus: tuple[int, ...] = ()  # that came with it
    local_milli: int | None = None
    local_cpus: tuple[int, ...] = ()
    local_mono_us: int = 0
    in_force_milli: int | None = None
    cut_milli: int | None = None  # by the reflex
    cut_mono_us: int = 0
    evicted_mono_us: int | None = None
    newest: dict[str, Order] = field(default_factory=dict)
    answers: OrderedDict[str, Ack] = field(default_factory=OrderedDict)

    def on_command(self, command: Command, mono_us: int, facts: Mapping[str, PodFact]) -> Verdict:
        """Judge a central command and remember it; effects are the caller's."""
        if command.node != self.node:
            return Verdict("refused", "wrong_node")
        if command.decider not in OBEYED:
            return Verdict("refused", "unknown_decider")
        if not command.id:
            return Verdict("refused", "no_id")
        before = self.answers.get(command.id)
        if before is not None:
            return Verdict("duplicate", before.reason, before=before)
        order = order_of(command.cause)
        newest = self.newest.get(command.decider)
        if newest is not None and order <= newest:
            stale = "stale_epoch" if order[0] < newest[0] else "stale_order"
            return Verdict("refused", stale if order < newest else "same_order")
        self.newest[command.decider] = order
        if command.decider == "suppress":
            return self._on_suppress(command, order, mono_us)
        if command.decider == "isolate":
            return self.on_isolate(command, mono_us)
        return self._on_evict(command, mono_us, facts)

    def _on_suppress(self, command: Command, order: Order, mono_us: int) -> Verdict:
        if command.allow_milli < 0:
            return Verdict("refused", "no_value")
        if command.dry_run:
            return Verdict("applied", "dry_run")
        ttl_ms = command.expires_log_ms - command.cause.log_ms
        self._settle(mono_us)
        lowers = command.allow_milli <= self._ceiling()
        self.standing = Standing(
            order, command.allow_milli, command.expires_log_ms, mono_us, ttl_ms * 1000, command.cpus
        )
        if self._settle(mono_us):
            return Verdict("applied")
        return Verdict("applied", "expired_lowers") if lowers else Verdict("refused", "expired")

    def on_isolate(self, command: Command, mono_us: int) -> Verdict:
        """Settings hold until others come; whether somebody still stands behind them is said by
        `isolation_live`. A new start asks again about the command that it answered before.
        """
        if command.settings is None:
            return Verdict("refused", "no_settings")
        if command.dry_run:
            return Verdict("applied", "dry_run")
        ttl_us = (command.expires_log_ms - command.cause.log_ms) * 1000
        order = order_of(command.cause)
        self.isolated = Standing(order, -1, command.expires_log_ms, mono_us, ttl_us)
        return Verdict("applied")

    def _on_evict(self, command: Command, mono_us: int, facts: Mapping[str, PodFact]) -> Verdict:
        """All named pods or none: a list with one wrong name was not made for this node's pods."""
        pods = tuple(dict.fromkeys(command.pods))
        if not pods:
            return Verdict("refused", "empty_pods")
        for uid in pods:
            reason = refusal(uid, facts)
            if reason is not None:
                return Verdict("refused", reason)
        now_ms = self.clock.now_ms(mono_us)
        if now_ms is None or now_ms > command.expires_log_ms:
            return Verdict("refused", "expired" if now_ms is not None else "no_broker_time")
        return self._gate(command, pods, mono_us)

    def on_local_evict(
        self, command: Command, mono_us: int, facts: Mapping[str, PodFact]
    ) -> Verdict:
        """Memory's last gate, by the local law: one pod a cool-down, at once."""
        for uid in command.pods:
            reason = refusal(uid, facts)
            if reason is not None:
                return Verdict("refused", reason)
        if not command.pods:
            return Verdict("refused", "empty_pods")
        return self._gate(command, command.pods[:1], mono_us)

    def _gate(self, command: Command, pods: tuple[str, ...], mono_us: int) -> Verdict:
        """What every eviction passes, whatever it frees; a passed one starts the cool-down.

        One that was ordered before policy, or the stage of the rollout, switched it off here
        comes too late.
        """
        if self.policy is None:
            return Verdict("refused", "no_policy")
        memory, cpu = self.policy.evict_memory, self.policy.evict_cpu
        if not (cpu.enabled if command.decider == "evict_cpu" else memory.enabled):
            return Verdict("refused", "switched_off")
        if command.dry_run:
            return Verdict("applied", "dry_run")
        cooldown_us = memory.cooldown_ms * 1000
        if self.evicted_mono_us is not None and mono_us - self.evicted_mono_us < cooldown_us:
            return Verdict("refused", "cool_down")
        self.evicted_mono_us = mono_us
        return Verdict("applied", "", pods)

    def on_lease(self, lease: Lease, mono_us: int) -> None:
        """Renew the standing command, unless the renewal is older than it or of another log."""
        if self.isolated is not None:
            self.isolated = _renewed(self.isolated, lease, mono_us)
        if self.standing is not None:
            self.standing = _renewed(self.standing, lease, mono_us)
            self._settle(mono_us)

    def on_local(self, allow_milli: int | None, mono_us: int, cpus: tuple[int, ...] = ()) -> None:
        """The local law was asked; None: no new answer, the last one stands."""
        self.local_mono_us = mono_us
        if allow_milli is not None:
            self.local_milli, self.local_cpus = allow_milli, cpus

    def is_live(self, mono_us: int) -> bool:
        """Whether the standing command may raise."""
        return self._live(self.standing, mono_us)

    def isolation_live(self, mono_us: int) -> bool:
        """Whether somebody still stands behind the settings of isolation."""
        return self._live(self.isolated, mono_us)

    def _live(self, held: Standing | None, mono_us: int) -> bool:
        now_ms = self.clock.now_ms(mono_us)
        if held is None or now_ms is None:
            return False
        return now_ms <= held.expires_log_ms and mono_us - held.renewed_mono_us <= held.ttl_us

    def target(self, mono_us: int) -> Target:
        """What shall be in force now."""
        live = self._settle(mono_us)
        if self.policy is None:
            return Target(self.floor_milli, "no_policy")
        if not self.policy.suppress.enabled:
            return Target(None, "suppress_off")
        floor = self.floor()
        local, why = self._local(mono_us, floor)
        ceiling = self._ceiling()
        if ceiling < local:
            why = "command" if live else "last_granted" if self.granted_milli else "never_granted"
        cpus = self.granted_cpus if ceiling < local else self.local_cpus if why == "local" else ()
        cpus = cpus if self.policy.suppress.policy == "cpuset" else ()
        allow = max(floor, min(ceiling, local))
        cut = self._cut(mono_us, self.policy.reflex)
        if cut is not None and cut < allow:
            return Target(max(floor, cut), REFLEX, cpus, both=True)
        return Target(allow, why, cpus)

    def floor(self) -> int:
        """What best-effort work always keeps, by this start's settings and the policy."""
        said = 0 if self.policy is None else self.policy.suppress.floor_milli
        return max(self.floor_milli, said)

    def on_reflex(self, cut_milli: int, mono_us: int) -> None:
        """An online pod is held up: nothing above ``cut_milli`` for as long as the policy says."""
        self.cut_milli, self.cut_mono_us = cut_milli, mono_us

    def remember(self, ack: Ack) -> None:
        """Keep an answer, so that the same command gets it again."""
        self.answers[ack.command_id] = ack
        while len(self.answers) > ANSWERS_KEPT:
            self.answers.popitem(last=False)

    def _local(self, mono_us: int, floor: int) -> tuple[int, str]:
        """The local law's word, or what stands in for it."""
        if mono_us - self.local_mono_us > LOCAL_SILENT_US:
            return floor, "local_silent"
        if self.local_milli is not None:
            return self.local_milli, "local"
        return (self.in_force_milli or floor), "local_cold"

    def _cut(self, mono_us: int, rule: Reflex) -> int | None:
        """The reflex's bound while it holds; the law, asked since, raises from there by steps."""
        held = mono_us - self.cut_mono_us < rule.hold_ms * 1000
        if not rule.enabled or not (held or self.local_mono_us <= self.cut_mono_us):
            self.cut_milli = None
        return self.cut_milli

    def _ceiling(self) -> int:
        return self.floor_milli if self.granted_milli is None else self.granted_milli

    def _settle(self, mono_us: int) -> bool:
        """Let the standing command move the ceiling: a live one freely, a lapsed one down only."""
        live = self.is_live(mono_us)
        if self.standing is not None:
            asked = self.standing.allow_milli
            if live or asked <= self._ceiling():
                self.granted_milli, self.granted_cpus = asked, self.standing.cpus
            else:
                self.granted_milli = self._ceiling()
        return live


def _renewed(held: Standing, lease: Lease, mono_us: int) -> Standing:
    """As held, or for longer: by a lease of the same log that is not older than the command."""
    order = order_of(lease.cause)
    if order[0] != held.order[0] or order < held.order:
        return held
    if lease.expires_log_ms <= held.expires_log_ms:
        return held
    ttl_us = (lease.expires_log_ms - lease.cause.log_ms) * 1000
    return replace(
        held, expires_log_ms=lease.expires_log_ms, renewed_mono_us=mono_us, ttl_us=ttl_us
    )


def order_of(cause: Cause) -> Order:
    """Total order of causes; the incarnation is that of the topic `samples`."""
    return cause.incarnation, cause.offset
