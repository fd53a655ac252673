"""The lease: what holds on a node, told by a table and by a machine of random histories."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from node_agent.lease import SIGHTINGS, BrokerClock, NodeLease, Verdict
from schemas.policy import EvictCpu, EvictMemory, Policy, Reflex, Suppress
from schemas.records import Ack, Cause, Command, Lease, PodFact

NODE = "n1"
LOG_AHEAD_MS = 1_700_000_000_000  # broker time at monotonic 0
TTL_MS = 30_000
FACTS = {
    "be-1": PodFact("be-1", "be-1", qos="BE"),
    "be-2": PodFact("be-2", "be-2", qos="BE"),
    "kept": PodFact("kept", "kept", qos="BE", evictable=False),
    "online": PodFact("online", "online", qos="LS"),
    "unclassed": PodFact("unclassed", "unclassed"),
}


def log_ms(mono_us: int) -> int:
    return LOG_AHEAD_MS + mono_us // 1000


def cause(offset: int, at_mono_us: int = 0, incarnation: int = 1) -> Cause:
    return Cause(incarnation, 3, offset, log_ms(at_mono_us), "digest", 1)


def suppress(
    offset: int, allow_milli: int, at_mono_us: int = 0, incarnation: int = 1, **more: Any
) -> Command:
    said = cause(offset, at_mono_us, incarnation)
    return Command(
        id=f"{incarnation}.3.{offset}.{NODE}.suppress",
        node=NODE,
        decider="suppress",
        cause=said,
        expires_log_ms=said.log_ms + TTL_MS,
        reason="lower",
        allow_milli=allow_milli,
        **more,
    )


def evict(offset: int, pods: tuple[str, ...], at_mono_us: int = 0, **more: Any) -> Command:
    command = suppress(offset, -1, at_mono_us, **more)
    return replace(command, id=f"1.3.{offset}.{NODE}.evict", decider="evict_memory", pods=pods)


def renewal(offset: int, at_mono_us: int, incarnation: int = 1) -> Lease:
    said = cause(offset, at_mono_us, incarnation)
    return Lease(said, said.log_ms + TTL_MS)


def a_lease(policy: Policy | None = Policy()) -> NodeLease:  # noqa: B008  (frozen)
    lease = NodeLease(NODE, floor_milli=10, policy=policy)
    lease.clock.acknowledged(LOG_AHEAD_MS, 0)
    return lease


def milli(lease: NodeLease, mono_us: int) -> int | None:
    return lease.target(mono_us).allow_milli


def test_value_in_force_is_the_lower_of_command_and_local_law() -> None:
    lease = a_lease()
    lease.on_local(700, 0)
    assert lease.on_command(suppress(1, 1500), 0, FACTS).outcome == "applied"
    assert (milli(lease, 0), lease.target(0).reason) == (700, "local")
    lease.on_command(suppress(2, 300), 0, FACTS)
    assert (milli(lease, 0), lease.target(0).reason) == (300, "command")


def test_raising_needs_a_live_command_and_lowering_does_not() -> None:
    lease = a_lease()
    lease.on_local(5000, 0)
    lease.on_command(suppress(1, 1000), 0, FACTS)
    late = 31_000_000
    lease.on_local(5000, late)
    assert lease.on_command(suppress(2, 2000), late, FACTS) == Verdict("refused", "expired")
    assert milli(lease, late) == 1000
    lowered = lease.on_command(suppress(3, 400), late, FACTS)
    assert lowered == Verdict("applied", "expired_lowers")
    assert milli(lease, late) == 400


def test_r1_silent_brain_leaves_the_local_law_under_the_last_granted_ceiling() -> None:
    lease = a_lease()
    lease.on_command(suppress(1, 1000), 0, FACTS)
    lease.on_local(2000, 0)
    assert milli(lease, 0) == 1000
    silent = 600_000_000  # ten minutes without a word
    lease.on_local(300, silent)
    assert milli(lease, silent) == 300  # down at once
    lease.on_local(3000, silent + 1)
    assert milli(lease, silent + 1) == 1000  # up again, never above what was granted
    assert lease.target(silent + 1).reason == "last_granted"


def test_r1_silent_brain_without_any_policy_means_floor_and_no_evictions() -> None:
    lease = a_lease(policy=None)
    lease.on_local(2000, 0)
    lease.on_command(suppress(1, 1000), 0, FACTS)
    assert (milli(lease, 0), lease.target(0).reason) == (10, "no_policy")
    assert lease.on_local_evict(evict(0, ("be-1",)), 0, FACTS) == Verdict("refused", "no_policy")
    assert lease.on_command(evict(2, ("be-1",)), 0, FACTS) == Verdict("refused", "no_policy")


def test_r1_node_that_never_heard_a_command_stays_at_the_floor() -> None:
    lease = a_lease()
    lease.on_local(2000, 0)
    assert (milli(lease, 0), lease.target(0).reason) == (10, "never_granted")


def test_r1_mute_local_law_means_floor() -> None:
    lease = a_lease()
    lease.on_command(suppress(1, 1000), 0, FACTS)
    lease.on_local(900, 0)
    assert milli(lease, 29_000_000) == 900
    assert (milli(lease, 30_000_001), lease.target(30_000_001).reason) == (10, "local_silent")


def test_renewals_keep_a_command_alive_and_revive_a_lapsed_one() -> None:
    lease = a_lease()
    lease.on_command(suppress(5, 1000), 0, FACTS)
    lease.on_lease(renewal(6, 20_000_000), 20_000_000)
    assert lease.is_live(49_000_000)
    assert not lease.is_live(51_000_000)
    lease.on_lease(renewal(9, 60_000_000), 60_000_000)
    assert lease.is_live(60_000_000)


def test_renewal_that_is_older_or_of_another_log_renews_nothing() -> None:
    lease = a_lease()
    lease.on_command(suppress(5, 1000), 0, FACTS)
    lease.on_lease(renewal(4, 20_000_000), 20_000_000)
    lease.on_lease(renewal(9, 20_000_000, incarnation=2), 20_000_000)
    assert not lease.is_live(31_000_000)


def test_standing_command_from_history_is_granted_once_its_renewal_is_read() -> None:
    lease = a_lease()
    now = 600_000_000
    lease.on_local(5000, now)
    assert lease.on_command(suppress(1, 1200), now, FACTS).reason == "expired"
    assert milli(lease, now) == 10
    lease.on_lease(renewal(500, now - 1_000_000), now)
    assert milli(lease, now) == 1200


def test_r4_twice_is_once_the_same_command_is_a_duplicate_with_its_first_answer() -> None:
    lease = a_lease()
    lease.on_local(5000, 0)
    command = suppress(1, 1000)
    lease.on_command(command, 0, FACTS)
    ack = Ack(NODE, "b", 1, 0, "suppress", "applied", command_id=command.id, in_force_milli=1000)
    lease.remember(ack)
    lease.on_command(suppress(2, 300), 0, FACTS)
    again = lease.on_command(command, 0, FACTS)
    assert (again.outcome, again.before) == ("duplicate", ack)
    assert milli(lease, 0) == 300


def test_r4_lower_order_is_refused_per_decider() -> None:
    lease = a_lease()
    lease.on_command(suppress(9, 1000, incarnation=2), 0, FACTS)
    assert lease.on_command(suppress(99, 5, incarnation=1), 0, FACTS).reason == "stale_epoch"
    assert lease.on_command(suppress(8, 5, incarnation=2), 0, FACTS).reason == "stale_order"
    other = replace(suppress(9, 5, incarnation=2), id="another")
    assert lease.on_command(other, 0, FACTS).reason == "same_order"
    assert lease.on_command(evict(1, ("be-1",)), 0, FACTS).outcome == "applied"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (replace(suppress(1, 500), node="n2"), "wrong_node"),
        (replace(suppress(1, 500), node=""), "wrong_node"),
        (replace(suppress(1, 500), decider="capacity"), "unknown_decider"),
        (replace(suppress(1, 500), id=""), "no_id"),
        (suppress(1, -1), "no_value"),
        (evict(1, ()), "empty_pods"),
        (evict(1, ("",)), "unknown_pod"),
        (evict(1, ("be",)), "unknown_pod"),  # never by prefix
        (evict(1, ("be-1", "nobody")), "unknown_pod"),
        (evict(1, ("online",)), "not_best_effort"),
        (evict(1, ("be-1", "online")), "not_best_effort"),
        (evict(1, ("unclassed",)), "not_best_effort"),
        (evict(1, ("kept",)), "opted_out"),
        (evict(1, ("be-1",), at_mono_us=-31_000_000), "expired"),
    ],
)
def test_r6_what_is_refused_and_why(command: Command, reason: str) -> None:
    lease = a_lease()
    lease.on_local(5000, 0)
    assert lease.on_command(command, 0, FACTS) == Verdict("refused", reason)
    assert milli(lease, 0) == 10
    if command.decider == "evict_memory":
        by_cpu = replace(command, decider="evict_cpu")
        assert a_lease().on_command(by_cpu, 0, FACTS) == Verdict("refused", reason)


def test_r6_wrong_node_and_unknown_decider_do_not_move_the_order() -> None:
    lease = a_lease()
    lease.on_command(replace(suppress(9, 500), node="n2"), 0, FACTS)
    assert lease.on_command(suppress(1, 500), 0, FACTS).outcome == "applied"


def test_evictions_share_one_cool_down() -> None:
    lease = a_lease(Policy(evict_memory=EvictMemory(cooldown_ms=4_000)))
    first = lease.on_local_evict(evict(0, ("be-1", "be-2")), 0, FACTS)
    assert first == Verdict("applied", "", ("be-1",))  # one pod a cool-down
    assert lease.on_local_evict(evict(0, ("be-2",)), 3_999_999, FACTS).reason == "cool_down"
    assert lease.on_command(evict(1, ("be-2",)), 3_999_999, FACTS).reason == "cool_down"
    assert lease.on_local_evict(evict(0, ("be-2",)), 4_000_000, FACTS).evict == ("be-2",)


def test_evictions_for_cpu_have_an_order_of_their_own_and_the_same_cool_down() -> None:
    rules = Policy(evict_memory=EvictMemory(cooldown_ms=4_000), evict_cpu=EvictCpu(enabled=True))
    lease = a_lease(rules)
    by_cpu = replace(evict(5, ("be-1",)), id="c5", decider="evict_cpu")
    assert lease.on_command(by_cpu, 0, FACTS).evict == ("be-1",)
    assert lease.on_command(evict(4, ("be-2",)), 3_999_999, FACTS).reason == "cool_down"
    older = replace(by_cpu, id="c4", cause=evict(4, ()).cause)
    assert lease.on_command(older, 4_000_000, FACTS).reason == "stale_order"
    assert lease.on_command(evict(6, ("be-2",)), 4_000_000, FACTS).evict == ("be-2",)


def test_an_order_that_comes_after_evictions_were_switched_off_is_refused() -> None:
    """Taken back to the stage observe: what is still on its way harms nobody."""
    lease = a_lease(Policy(evict_memory=EvictMemory(enabled=False)))
    off = Verdict("refused", "switched_off")
    assert lease.on_command(evict(1, ("be-1",)), 0, FACTS) == off
    assert lease.on_local_evict(evict(0, ("be-1",)), 0, FACTS) == off
    by_cpu = replace(evict(2, ("be-1",)), id="c2", decider="evict_cpu")
    assert lease.on_command(by_cpu, 0, FACTS) == off
    lease.policy = Policy()
    assert lease.on_command(evict(3, ("be-1",)), 0, FACTS).evict == ("be-1",)


def test_dry_run_changes_nothing() -> None:
    lease = a_lease()
    lease.on_local(5000, 0)
    assert lease.on_command(suppress(1, 500, dry_run=True), 0, FACTS).reason == "dry_run"
    assert milli(lease, 0) == 10
    tried = lease.on_command(evict(2, ("be-1",), dry_run=True), 0, FACTS)
    assert (tried.reason, tried.evict) == ("dry_run", ())
    assert lease.on_command(evict(3, ("be-1",)), 0, FACTS).evict == ("be-1",)


def test_suppression_switched_off_by_policy_gives_the_originals_back() -> None:
    lease = a_lease(Policy(suppress=Suppress(enabled=False)))
    lease.on_local(500, 0)
    assert milli(lease, 0) is None


def test_r13_broker_time_is_the_closest_acknowledgement_and_no_wall_clock() -> None:
    clock = BrokerClock()
    assert clock.now_ms(0) is None
    clock.acknowledged(LOG_AHEAD_MS + 250, 0)  # a slow way
    clock.acknowledged(LOG_AHEAD_MS + 1003, 1_000_000)  # a quick one
    clock.acknowledged(LOG_AHEAD_MS + 9000, 2_000_000)  # slow again
    assert clock.now_ms(3_000_000) == LOG_AHEAD_MS + 3003


def test_r13_a_clock_that_stood_still_is_found_out() -> None:
    clock = BrokerClock()
    for second in range(10):
        clock.acknowledged(1_000 * second, 1_000_000 * second)
    halted_ms = 60_000
    for second in range(10, 10 + SIGHTINGS):
        clock.acknowledged(halted_ms + 1_000 * second, 1_000_000 * second)
    assert clock.now_ms(20_000_000) == halted_ms + 20_000


def test_r13_without_broker_time_nothing_is_live() -> None:
    lease = NodeLease(NODE, floor_milli=10, policy=Policy())
    lease.on_local(5000, 0)
    assert lease.on_command(suppress(1, 1000), 0, FACTS) == Verdict("refused", "expired")
    assert lease.on_command(evict(2, ("be-1",)), 0, FACTS).reason == "no_broker_time"
    lease.clock.acknowledged(LOG_AHEAD_MS, 0)
    assert milli(lease, 0) == 1000  # it was remembered, and is live now


def test_r13_broker_clock_an_hour_ahead_does_not_stretch_a_command() -> None:
    lease = a_lease()
    skewed = replace(
        suppress(1, 1000),
        cause=replace(cause(1), log_ms=LOG_AHEAD_MS + 3_600_000),
        expires_log_ms=LOG_AHEAD_MS + 3_600_000 + TTL_MS,
    )
    lease.on_command(skewed, 0, FACTS)
    assert lease.is_live(29_000_000)
    assert not lease.is_live(31_000_000)


class Histories(RuleBasedStateMachine):
    """Random commands, renewals, local answers and silence, against a plain model."""

    def __init__(self) -> None:
        super().__init__()
        self.lease = a_lease()
        self.mono_us = 0
        self.offset = 0

    @rule(after_us=st.integers(0, 40_000_000))
    def time_passes(self, after_us: int) -> None:
        self.mono_us += after_us

    @rule(allow=st.integers(0, 4000))
    def the_local_law_answers(self, allow: int) -> None:
        self.lease.on_local(allow, self.mono_us)

    @rule(allow=st.integers(0, 4000), age_us=st.integers(0, 60_000_000))
    def a_command_comes(self, allow: int, age_us: int) -> None:
        self.offset += 1
        ceiling = self.lease.granted_milli or 10
        command = suppress(self.offset, allow, self.mono_us - age_us)
        verdict = self.lease.on_command(command, self.mono_us, FACTS)
        if age_us > TTL_MS * 1000 and allow > ceiling:
            assert verdict == Verdict("refused", "expired")

    @rule(behind=st.integers(1, 5), allow=st.integers(0, 4000))
    def an_old_command_comes(self, behind: int, allow: int) -> None:
        newest = self.lease.newest.get("suppress")
        if newest is not None:
            before = self.lease.standing
            old = replace(suppress(newest[1] - behind, allow, self.mono_us), id="late")
            assert self.lease.on_command(old, self.mono_us, FACTS).outcome == "refused"
            assert self.lease.standing == before

    @rule()
    def a_renewal_comes(self) -> None:
        self.offset += 1
        self.lease.on_lease(renewal(self.offset, self.mono_us), self.mono_us)

    @invariant()
    def nothing_rises_above_a_live_grant(self) -> None:
        live = self.lease.is_live(self.mono_us)
        granted_before = self.lease.granted_milli
        target = self.lease.target(self.mono_us).allow_milli
        assert target is not None
        assert target >= 10
        standing = self.lease.standing
        if live and standing is not None:
            assert target <= max(10, standing.allow_milli)
        else:
            assert target <= max(10, granted_before or 10)
        assert self.lease.local_milli is None or target <= max(10, self.lease.local_milli)


Histories.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestHistories = Histories.TestCase


CALM = Policy().reflex.hold_ms * 1000


def cut_lease() -> NodeLease:
    """In force 700 by the local law; cut to 175 at 1 s."""
    lease = a_lease()
    lease.on_command(suppress(1, 900), 0, FACTS)
    lease.on_local(700, 500_000)
    lease.on_reflex(175, 1_000_000)
    return lease


def test_a_cut_only_lowers_and_holds_until_it_is_over_and_the_law_was_asked_since() -> None:
    lease = cut_lease()
    assert (milli(lease, 1_000_000), lease.target(1_000_000).reason) == (175, "reflex")
    lease.on_command(suppress(2, 100, 1_100_000), 1_100_000, FACTS)
    assert (milli(lease, 1_100_000), lease.target(1_100_000).reason) == (100, "command")
    lease.on_command(suppress(3, 900, 1_200_000), 1_200_000, FACTS)
    assert milli(lease, 1_200_000) == 175
    assert milli(lease, 1_000_000 + CALM) == 175  # nobody asked the local law since the cut
    lease.on_local(375, 2_000_000)
    assert milli(lease, 999_999 + CALM) == 175
    assert (milli(lease, 1_000_000 + CALM), lease.cut_milli) == (375, None)


def test_a_cut_never_goes_below_the_floor_and_dies_with_its_switch() -> None:
    lease = cut_lease()
    lease.policy = Policy(suppress=Suppress(floor_milli=200))
    assert (milli(lease, 1_000_000), lease.floor()) == (200, 200)
    lease.policy = Policy(reflex=Reflex(enabled=False))
    assert milli(lease, 1_000_000) == 700


def test_where_cpus_are_bound_a_cut_sets_a_quota_within_them() -> None:
    lease = cut_lease()
    lease.policy = Policy(suppress=Suppress(policy="cpuset"))
    lease.on_local(700, 1_100_000, (0, 1))
    target = lease.target(1_100_000)
    assert (target.allow_milli, target.cpus, target.both) == (175, (0, 1), True)
