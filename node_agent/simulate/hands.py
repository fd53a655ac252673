"""A simulated node obeying: the agent's own lease and answers, with a model in the kernel's place.

What `node_agent.obey` does through actuators is done here to the model: judge a command, put the
lower of command and local law in force, read it back, ack. `NodeLease` and `Answers` are the real
ones; each node may keep a real journal.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from node_agent.answers import NO_CPUSET, Answers
from node_agent.journal import Journal, Remembered
from node_agent.journal_text import Line
from node_agent.lease import NO_ACT, BrokerClock, NodeLease
from node_agent.simulate.model import UNLIMITED
from node_agent.simulate.world import Said, World
from schemas.policy import Policy
from schemas.records import Ack, Command, Lease


class NoJournal(Journal):
    """For a node that remembers nothing: the simulation starts anew each time."""

    def __init__(self) -> None:
        self.state = Remembered()

    def append(self, line: Line) -> None:
        """Keep nothing."""

    def close(self) -> None:
        """Nothing to close."""


class Hands:
    """Leases and answers of all nodes; methods return what is to be published."""

    def __init__(
        self,
        world: World,
        clock: BrokerClock,
        mono_us: Callable[[], int],
        floor_milli: int,
        state_dir: Path | None,
        *,
        has_law: bool = True,
    ) -> None:
        """``state_dir``: a journal for each node in a folder of its name; None: no journals.

        ``has_law`` False: nodes without a local law, which limits nothing then.
        """
        fleet = world.fleet
        self.world = world
        self._has_law = has_law
        self.rows = {name.encode(): row for row, name in enumerate(fleet.names)}
        self._mono_us = mono_us
        self._leases = [NodeLease(name, floor_milli, clock=clock) for name in fleet.names]
        self._journals: list[Journal] = [
            NoJournal() if state_dir is None else Journal(state_dir / name, fleet.kernel_boot)
            for name in fleet.names
        ]
        self._answers = [
            Answers(boot, journal, lease, mono_us, dry_run=False)
            for boot, journal, lease in zip(fleet.boots, self._journals, self._leases, strict=True)
        ]
        self._partition: dict[int, set[int]] = {}

    def policy(self, of_node: Callable[[str], Policy | None]) -> None:
        """The policy that each node knows now."""
        for lease in self._leases:
            lease.policy = of_node(lease.node)

    def command(self, row: int, command: Command, partition: int) -> list[Said]:
        """A central command for a node, read from ``partition``: judged, carried out, answered."""
        self._partition.setdefault(partition, set()).add(row)
        verdict = self._leases[row].on_command(command, self._mono_us(), self.world.facts[row])
        if verdict.evict:
            said = self._evict(row, verdict.evict)
            return [
                *said,
                *self._ack(self._answers[row].outcome(command, "applied", "", verdict.evict)),
            ]
        if verdict.outcome != "applied" or verdict.reason in NO_ACT:
            return self._ack(self._answers[row].verdict(command, verdict))
        return self._enforce(row, command)

    def renewed(self, lease: Lease, partition: int) -> list[Said]:
        """A lease of a partition: for every node that has a command from there."""
        out: list[Said] = []
        for row in sorted(self._partition.get(partition, ())):
            self._leases[row].on_lease(lease, self._mono_us())
            out += self._enforce(row, None)
        return out

    def beat(self, row: int, commands: list[Command] | None) -> list[Said]:
        """Once a period: the local law's answers (empty: the last ones stand; None: it is mute)."""
        lease, now = self._leases[row], self._mono_us()
        if not self._has_law:
            lease.on_local(int(self.world.fleet.cpu_milli[row]), now)
        if commands is None:
            return self._enforce(row, None)
        asked = [each for each in commands if each.decider == "suppress"]
        if asked:
            lease.on_local(asked[-1].allow_milli, now, asked[-1].cpus)
        else:
            lease.on_local(None, now)
        out: list[Said] = []
        for command in commands:
            if command.decider == "evict_memory":
                out += self._local_evict(row, command)
        return out + self._enforce(row, None)

    def close(self) -> None:
        """Close the journals."""
        for journal in self._journals:
            journal.close()

    def counts(self) -> dict[str, int]:
        """Acks so far by outcome."""
        total: dict[str, int] = {}
        for answers in self._answers:
            for (_, outcome), count in answers.counts.items():
                total[outcome] = total.get(outcome, 0) + count
        return total

    def _enforce(self, row: int, owed: Command | None) -> list[Said]:
        """Put in force what holds now; acks for an owed command or a change."""
        lease, answers = self._leases[row], self._answers[row]
        target = lease.target(self._mono_us())
        value = UNLIMITED if target.allow_milli is None else target.allow_milli
        before = lease.in_force_milli
        self.world.model.allow_milli[row] = value
        lease.in_force_milli = value
        if value != before:
            answers.in_force(target.reason)
        if owed is not None:
            why = "" if target.allow_milli == owed.allow_milli else target.reason
            why = NO_CPUSET if target.cpus else why  # the model knows a quota only
            return self._ack(answers.outcome(owed, "applied", why))
        if value == before:
            return []
        return self._ack(answers.own("suppress", "local", target.reason, asked_milli=value))

    def _local_evict(self, row: int, command: Command) -> list[Said]:
        lease, answers = self._leases[row], self._answers[row]
        verdict = lease.on_local_evict(command, self._mono_us(), self.world.facts[row])
        if verdict.evict:
            said = self._evict(row, verdict.evict)
            ack = answers.local_eviction(command, "local", "", verdict.evict)
            return [*said, *self._ack(ack)]
        if verdict.reason == "cool_down":
            return []
        return self._ack(answers.own("evict_memory", "local", verdict.reason))

    def _evict(self, row: int, uids: tuple[str, ...]) -> list[Said]:
        now = self._mono_us()
        return [said for uid in uids for said in self.world.evict(row, uid, now)]

    def _ack(self, ack: Ack) -> list[Said]:
        return [("acks", ack.node, ack)]
