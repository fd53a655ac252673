"""From a verdict to the kernel and back to an ack: the one place where the node agent acts.

`node_agent.loop` feeds it, one item at a time: central commands, leases, and each period the
answers of the local law, on which drift is put right too and failures are tried again. Returns
acks for the loop to publish. Nothing here waits for Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from agents import machine, reflex
from agents.cpuset import Pins, without
from agents.isolation import columns
from node_agent.actuators import cpu_quota
from node_agent.actuators.failure import REFUSALS, reason_of
from node_agent.answers import NO_CPUSET, Answers
from node_agent.evictions import Evictions
from node_agent.executors.cri import Runtime
from node_agent.hold import Hold
from node_agent.inventory import Census
from node_agent.inventory_cpus import MILLI_PER_CPU
from node_agent.isolation import Isolation
from node_agent.journal import Journal
from node_agent.lease import NO_ACT, REFLEX, NodeLease, Target, order_of
from node_agent.originals import Trees
from schemas.facts import STATIC_CPUS
from schemas.policy import Policy
from schemas.records import Ack, Command, Inventory, Lease, Outcome, PodFact

SAY_AGAIN_US = 30_000_000  # what isolation leaves out is said at most so often
log = logging.getLogger(__name__)


class Obey:
    """The node's hands. `follow` tells who is on the machine and where best-effort work lives."""

    def __init__(
        self,
        *,
        boot: str,
        journal: Journal,
        lease: NodeLease,
        mono_us: Callable[[], int],
        use_idle: bool = True,
        dry_run: bool = False,
        runtime: Runtime | None = None,
        wake: Callable[[int], None] = lambda _ms: None,
    ) -> None:
        """``wake``: asks for a `step` in so many milliseconds, sooner than the next beat."""
        self.facts: Mapping[str, PodFact] = {}
        self.paths: Mapping[str, str] = {}
        self.lease = lease
        self.answers = Answers(boot, journal, lease, mono_us, dry_run)
        self.hold = Hold(journal, use_idle=use_idle, dry_run=dry_run)
        self.isolation = Isolation(journal, dry_run=dry_run)
        self.evictions = Evictions(
            journal,
            self.answers,
            lease,
            self.isolation,
            mono_us,
            Runtime() if runtime is None else runtime,
            wake,
            dry_run=dry_run,
        )
        self._write_refusals = 0
        self._owned = Pins()
        self._lendable: frozenset[int] | None = None  # CPUs; None: nobody said
        self._mono_us, self._dry_run = mono_us, dry_run
        self._owed: Command | None = None  # accepted, but the kernel has not taken it yet
        self._owed_said = False  # its failure was acked
        self._last_failure = ""
        self._isolated: tuple[Outcome, str] = ("applied", "")  # what was said last of isolation
        self._isolated_us = 0
        self._judged: Policy | None = None  # the policy that `_off` was found for
        self._off = False

    @property
    def kernel_refusals(self) -> int:
        """Writes and kills that the kernel refused."""
        return self._write_refusals + self.evictions.kernel_refusals

    def follow(self, census: Census, trees: Trees | None) -> None:
        """The pods now, and the best-effort subtree (None: there is none)."""
        self.facts = {pod.uid: pod for pod in census.record.pods}
        self.paths = {pod.fact.uid: pod.group for pod in census.pods()}
        self.hold.trees = trees
        self.evictions.facts, self.evictions.paths = self.facts, self.paths
        self.evictions.trees = trees
        self._owned = machine.pins(machine.of(census.record, census.record.pods))
        self._lendable = _lendable(census.record)

    async def command(self, command: Command, *, history: bool = False) -> list[Ack]:
        """A central command: judged, carried out, answered.

        ``history``: it was there before this start; what was answered then is not answered again.
        """
        verdict = self.lease.on_command(command, self._mono_us(), self.facts)
        again = verdict.outcome == "duplicate"
        if again and command.decider == "isolate" and self.isolation.settings is None:
            self._learn(command)
        if history and again:
            return []
        if verdict.evict:
            return self._held(await self.evictions.order(command, "command", verdict.evict))
        if verdict.outcome != "applied" or verdict.reason in NO_ACT:
            return [self.answers.verdict(command, verdict)]
        if command.decider == "isolate":
            self._isolate(command)
            return [self.answers.outcome(command, *self._isolated)]
        self._owed, self._owed_said = command, False
        return self.enforce()

    def renewed(self, lease: Lease) -> list[Ack]:
        """A lease of the partition; it may let a standing command raise again."""
        self.lease.on_lease(lease, self._mono_us())
        return self.enforce()

    async def beat(self, commands: list[Command] | None) -> list[Ack]:
        """Once a period. The local law's answers (empty: the last ones stand; None: it is mute)."""
        acks: list[Ack] = []
        if commands is not None:
            asked = [(c.allow_milli, c.cpus) for c in commands if c.decider == "suppress"]
            allow_milli, cpus = asked[-1] if asked else (None, ())
            self.lease.on_local(allow_milli, self._mono_us(), cpus)
            for command in commands:
                if command.decider == "evict_memory":  # for CPU a node kills by order only
                    acks += await self._local_evict(command)
        acks += self.enforce() + await self.step()
        return acks + self._hold_isolation()

    def reflex(self, uid: str, terms: Mapping[str, int]) -> list[Ack]:
        """An online pod is held up: best-effort work is cut at once, where there is any to cut.

        While a pod is being killed its brakes are off on purpose: the cut is put in force after it.
        """
        lease = self.lease
        before, policy = lease.in_force_milli, lease.policy
        if before is None or policy is None or before <= lease.floor():
            return []
        lease.on_reflex(reflex.cut(before, lease.floor(), policy.reflex), self._mono_us())
        if self.evictions.killing:
            return []
        said = dict(terms, before_milli=before)
        return [
            replace(ack, pods=(uid,), terms=said) if ack.reason == REFLEX else ack
            for ack in self.enforce()
        ]

    def enforce(self) -> list[Ack]:
        """Make the kernel say what holds now; acks for what changed or failed."""
        target = self.lease.target(self._mono_us())
        before = self.lease.in_force_milli
        try:
            refused = self.hold.release() if target.allow_milli is None else []
            now_milli, instead = self._bound(target)
        except REFUSALS as error:
            return self._refused(reason_of(error), target)
        if refused:
            return self._refused(refused[0], target)
        self._last_failure = ""
        self.lease.in_force_milli = now_milli
        if now_milli != before:
            self.answers.in_force(target.reason)
        owed, self._owed = self._owed, None
        if owed is not None:
            why = "" if target.allow_milli == owed.allow_milli else target.reason
            if now_milli == cpu_quota.UNLIMITED and target.allow_milli is not None:
                why = "no_best_effort_group"
            elif instead:
                why = instead
            return [self.answers.outcome(owed, "applied", why)]
        if now_milli == before:
            return []
        asked = -1 if target.allow_milli is None else target.allow_milli
        why = instead or target.reason
        return [self.answers.own("suppress", "local", why, asked_milli=asked)]

    def _learn(self, command: Command) -> None:
        """A new start learns from a command that was answered before it what stands."""
        if order_of(command.cause) == self.lease.newest.get("isolate"):
            verdict = self.lease.on_isolate(command, self._mono_us())
            if verdict.outcome == "applied" and verdict.reason not in NO_ACT:
                self._isolate(command)

    def _isolate(self, command: Command) -> None:
        """Carry the settings of a command out at once."""
        if command.settings is None:
            return
        now_us = self._mono_us()
        self.isolation.obey(command.settings)
        self._turn_isolation(now_us)
        self._isolated, self._isolated_us = self.isolation.outcome(), now_us

    def _turn_isolation(self, now_us: int) -> None:
        """What policy, or the stage of the rollout, switched off on this node is not done."""
        policy = self.lease.policy
        if policy is not self._judged:
            self._judged, self._off = policy, policy is not None and columns.common(policy).idle
        self.isolation.beat(now_us, live=self.lease.isolation_live(now_us), off=self._off)

    def _hold_isolation(self) -> list[Ack]:
        """Once a period: isolation held in force; an ack when something else is left out now."""
        now_us = self._mono_us()
        self._turn_isolation(now_us)
        now = self.isolation.outcome()
        quiet = self._mono_us() - self._isolated_us < SAY_AGAIN_US
        if self.isolation.settings is None or now == self._isolated or quiet:
            return []
        self._isolated, self._isolated_us = now, self._mono_us()
        outcome: Outcome = "failed" if now[0] == "failed" else "local"
        return [self.answers.own("isolate", outcome, now[1])]

    def _bound(self, target: Target) -> tuple[int, str]:
        """Put the bound in force, by CPUs or by quota; the milli in force, and why not by CPUs.

        There is a bound at every moment: the new one is set before the old one is lifted.
        """
        if target.allow_milli is None:
            now_milli = self.hold.in_force()
            self.isolation.bound(now_milli, self._mono_us())
            return now_milli, ""
        cpus = self._usable(target.cpus)
        bound, instead = self._bind(cpus) if cpus else ((), NO_CPUSET if target.cpus else "")
        allow_milli = None if bound and not target.both else target.allow_milli
        if allow_milli is not None:
            self.isolation.make_room(allow_milli, self._mono_us())
        now_milli = self.hold.quota(allow_milli)
        self.isolation.bound(now_milli, self._mono_us())
        if not bound:
            self.hold.unbind()
        else:
            most = len(bound) * MILLI_PER_CPU
            now_milli = most if now_milli == cpu_quota.UNLIMITED else min(now_milli, most)
        self.hold.idle()
        return now_milli, instead

    def _usable(self, cpus: tuple[int, ...]) -> tuple[int, ...]:
        """Those that are on line now and nobody else's."""
        found, lendable = without(cpus, self._owned), self._lendable
        return found if lendable is None else tuple(cpu for cpu in found if cpu in lendable)

    def _bind(self, cpus: tuple[int, ...]) -> tuple[tuple[int, ...], str]:
        """The CPUs that best-effort work runs on now; none, with a reason, where it cannot be."""
        try:
            bound = self.hold.bind(cpus)
        except REFUSALS as error:
            self._write_refusals += 1
            return (), reason_of(error)
        return bound, "" if bound else NO_CPUSET

    def release(self) -> list[str]:
        """Originals back, for SIGTERM, SIGINT and uninstall; what the kernel refused."""
        return self.hold.release() + self.isolation.release()

    async def _local_evict(self, command: Command) -> list[Ack]:
        verdict = self.lease.on_local_evict(command, self._mono_us(), self.facts)
        if verdict.evict:
            return self._held(await self.evictions.order(command, "local", verdict.evict))
        if verdict.reason == "cool_down":
            return []
        return [self.answers.own("evict_memory", "local", verdict.reason, dry_run=command.dry_run)]

    async def step(self) -> list[Ack]:
        """Look after the evictions that have begun."""
        return self._held(await self.evictions.step())

    def _held(self, acks: list[Ack]) -> list[Ack]:
        """After an act on pods the bound is looked at: a kill lifts it for a moment."""
        acted = any(ack.outcome != "refused" for ack in acks)
        return acks + self.enforce() if acted else acks

    def _refused(self, reason: str, target: Target) -> list[Ack]:
        """The kernel said no: said once, tried again each period."""
        self._write_refusals += 1
        said, self._last_failure = reason == self._last_failure, reason
        if not said:
            log.warning("the kernel refuses what is decided: %s; tried again each period", reason)
        if self._owed is not None and not self._owed_said:
            self._owed_said = True
            return [self.answers.outcome(self._owed, "failed", reason)]
        if said:
            return []
        asked = -1 if target.allow_milli is None else target.allow_milli
        return [self.answers.own("suppress", "failed", reason, asked_milli=asked)]


def _lendable(record: Inventory) -> frozenset[int] | None:
    """CPUs that best-effort work may be bound to: none where the kubelet hands out CPUs itself, for
    an order may be older than its policy; None where nobody says which there are.
    """
    if record.capabilities.get(STATIC_CPUS, False):
        return frozenset()
    return None if record.topology is None else frozenset(record.topology.cpu)
