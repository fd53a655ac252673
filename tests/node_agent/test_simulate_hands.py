"""Simulated nodes obey like real ones: lower of command and local law, refusals, acks, journals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from node_agent.journal import recall
from node_agent.lease import BrokerClock
from node_agent.simulate import fleet
from node_agent.simulate.hands import Hands
from node_agent.simulate.law import FleetLaw
from node_agent.simulate.trace import load
from node_agent.simulate.world import Said, World
from schemas.policy import Policy, Rollout
from schemas.records import Ack, Cause, Command, Lease, PolicyRecord

GIB = 1 << 30
SECOND_US = 1_000_000
LOG_MS = 1_000_000


class Stage:
    """Two nodes with batch work, a clock in hand, broker time = LOG_MS + monotonic."""

    def __init__(self, state_dir: Path | None = None, *, has_law: bool = True) -> None:
        self.now_us = SECOND_US
        self.world = World(fleet.build(2, 20, 1, 60), load("azure"), 1, 1000, scheduling=True)
        clock = BrokerClock()
        clock.acknowledged(LOG_MS, 0)
        self.hands = Hands(self.world, clock, lambda: self.now_us, 10, state_dir, has_law=has_law)
        for row in range(2):
            self.world.scheduler.offer(row, 8000, 64 * GIB, self.now_us, new_work=True)
        self.world.settle(slice(0, 2), self.now_us)

    def suppress(self, offset: int, allow_milli: int) -> Command:
        log_ms = LOG_MS + self.now_us // 1000
        return Command(
            id=f"1.0.{offset}.sim-00000.suppress",
            node="sim-00000",
            decider="suppress",
            cause=Cause(1, 0, offset, log_ms, "abc", 1),
            expires_log_ms=log_ms + 30_000,
            reason="online",
            allow_milli=allow_milli,
        )

    def evict(self, offset: int, *uids: str) -> Command:
        suppress = self.suppress(offset, -1)
        return replace(suppress, id=f"e{offset}", decider="evict_memory", pods=uids)

    def batch_uid(self) -> str:
        return next(pod.uid for pod in self.world.inventory(0).pods if pod.qos == "BE")


def only_ack(said: list[Said]) -> Ack:
    (ack,) = [record for topic, _, record in said if topic == "acks"]
    assert isinstance(ack, Ack)
    return ack


def test_without_a_policy_the_floor_holds_and_nobody_is_evicted() -> None:
    stage = Stage()
    stage.hands.beat(0, None)
    assert stage.world.model.allow_milli.tolist() == [10, -1]
    ack = only_ack(stage.hands.command(0, stage.evict(5, stage.batch_uid()), 0))
    assert (ack.outcome, ack.reason) == ("refused", "no_policy")


def test_a_command_is_put_in_force_acked_and_obeyed_twice_as_once() -> None:
    stage = Stage(has_law=False)
    stage.hands.policy(lambda _: Policy())
    stage.hands.beat(0, None)
    command = stage.suppress(7, 3000)
    ack = only_ack(stage.hands.command(0, command, 0))
    assert (ack.outcome, ack.in_force_milli, ack.offset) == ("applied", 3000, 7)
    assert stage.world.model.allow_milli[0] == 3000
    assert only_ack(stage.hands.command(0, command, 0)).outcome == "duplicate"
    older = only_ack(stage.hands.command(0, stage.suppress(6, 9000), 0))
    assert (older.outcome, older.reason) == ("refused", "stale_order")
    assert stage.world.model.allow_milli[0] == 3000


def test_the_lower_of_command_and_local_law_holds() -> None:
    stage = Stage()
    stage.hands.policy(lambda _: Policy())
    stage.hands.beat(0, [stage.suppress(0, 2000)])
    stage.hands.command(0, stage.suppress(7, 3000), 0)
    assert stage.world.model.allow_milli[0] == 2000
    stage.hands.beat(0, [stage.suppress(0, 5000)])
    assert stage.world.model.allow_milli[0] == 3000


def test_only_the_leases_of_its_partition_renew_a_command() -> None:
    stage = Stage()
    stage.hands.policy(lambda _: Policy())
    stage.hands.command(0, stage.suppress(7, 3000), 4)
    cause = Cause(1, 4, 100, LOG_MS + 26_000, "abc", 1)
    stage.now_us = 25 * SECOND_US
    stage.hands.renewed(Lease(cause, LOG_MS + 56_000), 3)
    stage.now_us = 40 * SECOND_US
    assert not stage.hands._leases[0].is_live(stage.now_us)
    stage.hands.renewed(Lease(cause, LOG_MS + 56_000), 4)
    assert stage.hands._leases[0].is_live(stage.now_us)


def test_a_batch_pod_is_evicted_and_an_online_or_unknown_pod_never() -> None:
    stage = Stage()
    stage.hands.policy(lambda _: Policy())
    online = stage.world.fleet.online_uid(0, 0)
    for offset, uid in enumerate((online, "", "unknown"), start=1):
        ack = only_ack(stage.hands.command(0, stage.evict(offset, uid), 0))
        assert ack.outcome == "refused"
    assert only_ack(stage.hands.command(0, stage.evict(4), 0)).reason == "empty_pods"
    assert stage.world.evictions == 0
    uid = stage.batch_uid()
    said = stage.hands.command(0, stage.evict(9, uid), 0)
    assert only_ack(said).pods == (uid,)
    assert [r.state for t, _, r in said if t == "jobs"] == ["evicted"]
    assert stage.world.evictions == 1


def test_journals_are_the_agents_own(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.hands.policy(lambda _: Policy())
    stage.hands.command(0, stage.suppress(7, 3000), 0)
    stage.hands.close()
    remembered = recall(tmp_path / "sim-00000")
    assert list(remembered.commands) == ["1.0.7.sim-00000.suppress"]
    again = Stage(tmp_path)
    again.hands.policy(lambda _: Policy())
    assert only_ack(again.hands.command(0, stage.suppress(7, 3000), 0)).outcome == "duplicate"
    again.hands.close()


def test_the_fleets_own_law_suppresses_a_crowded_node() -> None:
    stage = Stage()
    law = FleetLaw()
    law.hear("policies", b"default", PolicyRecord("default", 1, "", "rollout: {stage: expand}\n"))
    for row, name in enumerate(stage.world.fleet.names):
        law.hear("inventory", name.encode(), stage.world.inventory(row))
    law.tick(stage.now_us)
    assert law.policy(stage.world.fleet.names[0]) == Policy(rollout=Rollout("expand"))
    asked: dict[str, int] = {}
    for _ in range(5):
        stage.now_us += SECOND_US
        stage.world.step(slice(0, 2), stage.now_us, 1.0)
        raws = stage.world.sampler.sample(slice(0, 2), stage.now_us, 0)
        for node, commands in law.fold(raws, stage.now_us).items():
            asked[node] = commands[-1].allow_milli
        law.tick(stage.now_us)
    assert set(asked) == set(stage.world.fleet.names)
    for row, name in enumerate(stage.world.fleet.names):
        capacity = int(stage.world.fleet.cpu_milli[row])
        online = int(stage.world.model.online_milli[row])
        system = capacity * 20 // 1000
        assert abs(asked[name] - (capacity * 65 // 100 - online - system)) <= capacity // 50
