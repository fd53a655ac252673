"""The reflex: over a tree of small files with a clock set by hand, and on this very kernel."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from node_agent.actuators.subtree import Subtree
from node_agent.cgroup.layout import detect
from node_agent.inventory import Census
from node_agent.journal import Journal
from node_agent.lease import NodeLease
from node_agent.obey import Obey
from node_agent.originals import Trees
from node_agent.reflex import CALM_POLLS, HOT, IDLE_MS, Reflex, slices
from node_agent.sampler import Sampler
from schemas import policy as policies
from schemas.policy import Policy, Suppress
from schemas.records import Ack, Inventory, PodFact
from tests.bench import reflex as bench
from tests.node_agent.kernel import real_groups
from tests.node_agent.trees import overwrite
from tests.support import patient

ROOT = "kubepods/besteffort"
ONLINE = "kubepods/burstable"
START_MILLI = 1000
RULE = Policy().reflex
POLL_MS = RULE.poll_ms


class Machine:
    """A v2 machine of files: pods named ``web-N`` online, ``batch`` best-effort at 800 milli."""

    def __init__(self, root: Path, online: int = 1, *, pressure: bool = True) -> None:
        self.root, self.now_us, self.pressure = root, 1_000_000, pressure
        (root / "proc/self").mkdir(parents=True)
        line = "35 24 0:30 / /cg rw - cgroup2 cgroup2 rw\n"
        (root / "proc/self/mountinfo").write_text(line)
        self.uids = [f"web-{n:02}" for n in range(online)]
        self.stalls = dict.fromkeys([*self.uids, "batch"], 0)
        self.groups = {uid: f"{ONLINE}/{uid}" for uid in self.uids} | {"batch": f"{ROOT}/batch"}
        self.used_us, self.only_wait = 0, False
        self.runs = dict.fromkeys([*self.uids, "batch"], 0)
        (root / "cg").mkdir()
        (root / "cg/cgroup.controllers").write_text("cpu memory\n")
        for group in (*self.groups.values(), ONLINE, ROOT):
            (root / "cg" / group).mkdir(parents=True, exist_ok=True)
        self.file(ROOT, "cpu.max", "100000 100000\n")
        self.file(ROOT, "cpu.idle", "1\n")
        self.file(ROOT, "cpu.weight", "100\n")
        self.told: list[Ack] = []
        self._wire()
        self.write()

    def _wire(self) -> None:
        layout = detect(str(self.root))
        facts = [PodFact(uid, uid, qos="LS") for uid in self.uids]
        pods = tuple(sorted([*facts, PodFact("batch", "batch", qos="BE")], key=lambda f: f.uid))
        record = Inventory("n", 1, 2000, 1 << 30, pods=pods)
        self.census = Census(record, tuple(self.groups[fact.uid] for fact in pods), ROOT)
        journal = Journal(self.root / "state", "k" * 32)
        self.lease = NodeLease("n", 10, policy=Policy())
        self.obey = Obey(boot="b1", journal=journal, lease=self.lease, mono_us=self.mono_us)
        self.lease.granted_milli = 2000
        tree = Subtree(str(self.root / "cg"), 2, ROOT, overwrite)
        self.obey.follow(self.census, Trees(tree, tree))
        self.sampler = Sampler(layout, self, "n", self)
        self.alarms = 0
        self.reflex = Reflex(self.sampler, self.obey, self.mono_us, self.told.extend, self._alarmed)

    def _alarmed(self) -> None:
        self.alarms += 1

    def mono_us(self) -> int:
        return self.now_us

    def wall_ms(self) -> int:
        return 0

    def poll(self, _mono_us: int) -> Census:
        return self.census

    def file(self, group: str, name: str, text: str) -> None:
        (self.root / "cg" / group / name).write_text(text)

    def write(self) -> None:
        for uid, group in self.groups.items():
            self.file(group, "cpu.stat", f"usage_usec {self.runs[uid]}\n")
            if self.pressure:
                self.file(group, "cpu.pressure", psi(self.stalls[uid]))
        if self.pressure:
            self.file(ONLINE, "cpu.pressure", psi(max(self.stalls[uid] for uid in self.uids)))
        self.file(ROOT, "cpu.stat", f"usage_usec {self.used_us}\n")

    def sample(self) -> None:
        """One beat of a second's period: the law says what it said before."""
        self.reflex.learn(self.sampler.sweep())
        self.lease.on_local(START_MILLI, self.now_us)
        self.told += self.obey.enforce()

    def live(self, seconds: int = 5) -> None:
        """Calm seconds with best-effort work at 800 milli."""
        for _ in range(seconds):
            self.pass_ms(1000)
            self.sample()
        self.looks(6)  # best-effort work is known to run
        self.told.clear()

    def pass_ms(self, ms: int, be_milli: int = 800, **stalled_permille: int) -> None:
        """Pods use 10 milli; those that stall a whole core, unless they only wait."""
        self.now_us += ms * 1000
        self.used_us += ms * be_milli
        for uid in self.runs:
            stalls = uid.replace("-", "_") in stalled_permille
            self.runs[uid] += ms * (10 if self.only_wait or not stalls else 1000)
        for name, share in stalled_permille.items():
            self.stalls[name.replace("_", "-")] += ms * share
        self.write()

    def looks(self, count: int, be_milli: int = 800, **stalled_permille: int) -> int:
        """So many looks, a poll apart; the pause after the last."""
        pause_ms = 0
        for _ in range(count):
            self.pass_ms(POLL_MS, be_milli, **stalled_permille)
            pause_ms = self.reflex.poll()
        return pause_ms

    def quota_milli(self) -> int:
        quota_us, period_us = (self.root / "cg" / ROOT / "cpu.max").read_text().split()
        return int(quota_us) * 1000 // int(period_us)


def psi(total_us: int) -> str:
    line = "avg10=0.00 avg60=0.00 avg300=0.00"
    return f"some {line} total={total_us}\nfull {line} total={total_us}\n"


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    made.reflex.close()
    made.sampler.close()


def test_a_pod_held_up_for_two_looks_cuts_and_says_so(machine: Machine) -> None:
    machine.live()
    assert machine.looks(1, web_00=500) == POLL_MS
    assert machine.told == []
    machine.looks(1, web_00=500)
    (ack,) = machine.told
    assert (ack.decider, ack.outcome, ack.reason, ack.pods) == (
        "suppress", "local", "reflex", ("web-00",),
    )  # fmt: skip
    assert (ack.in_force_milli, machine.quota_milli()) == (250, 250)
    assert ack.terms == {
        "before_milli": 1000,
        "beyond_permille": 500,
        "normal_permille": 0,
        "span_ms": 2 * POLL_MS,
        "looks": 2,
    }
    assert machine.reflex.cuts == 1


def test_a_pod_that_is_busier_too_is_believed_near_the_share(machine: Machine) -> None:
    machine.live()
    machine.looks(2, web_00=250)
    assert [ack.terms["beyond_permille"] for ack in machine.told] == [250]


def test_one_that_only_waits_must_wait_for_more_of_the_time(machine: Machine) -> None:
    machine.live()
    machine.only_wait = True
    assert machine.looks(4, web_00=250) == POLL_MS
    assert machine.told == []
    machine.looks(2, web_00=450)
    assert [ack.terms["looks"] for ack in machine.told] == [6]


def test_a_cut_goes_on_down_to_the_floor_and_the_law_releases_it(machine: Machine) -> None:
    machine.live()
    machine.looks(8, web_00=900)
    assert [ack.in_force_milli for ack in machine.told] == [250, 62, 15, 10]
    assert machine.looks(2, web_00=900) == IDLE_MS  # nothing is left to take
    for _ in range(2):
        machine.pass_ms(1000, be_milli=10)
        machine.sample()
        assert machine.quota_milli() == 10
    machine.pass_ms(1000, be_milli=10)
    machine.sample()
    assert machine.quota_milli() == START_MILLI


def test_no_jump_no_cut_whatever_best_effort_work_feels(machine: Machine) -> None:
    machine.live()
    machine.looks(20, web_00=150, batch=1000)
    assert machine.told == []
    assert machine.reflex.polls >= 20


def test_best_effort_work_that_does_not_run_is_not_the_cause(machine: Machine) -> None:
    machine.live()
    machine.pass_ms(1000, be_milli=0)
    machine.sample()
    before = machine.reflex.polls
    assert machine.looks(10, be_milli=RULE.least_milli - 1, web_00=900) == IDLE_MS
    assert machine.told == []
    assert machine.reflex.polls == before  # it did not even look at the pods


@pytest.mark.parametrize(
    "policy",
    [
        None,
        policies.parse("reflex: {enabled: false}", "test"),
        Policy(suppress=Suppress(enabled=False)),
    ],
)
def test_what_policy_does_not_say_or_switches_off_is_not_done(
    machine: Machine, policy: Policy | None
) -> None:
    machine.live()
    machine.lease.policy = policy
    assert machine.looks(4, web_00=900) == IDLE_MS
    assert machine.told == []
    assert machine.reflex.cuts == 0


def test_a_pod_that_a_containers_own_quota_stops_is_no_contention(machine: Machine) -> None:
    container = f"{ONLINE}/web-00/c1"
    (machine.root / "cg" / container).mkdir()
    machine.file(container, "cpu.stat", "usage_usec 1\nnr_throttled 3\nthrottled_usec 1000\n")
    machine.live()
    machine.looks(1, web_00=600)
    machine.file(container, "cpu.stat", "usage_usec 1\nnr_throttled 9\nthrottled_usec 61000\n")
    machine.looks(1, web_00=600)
    assert machine.told == []
    assert machine.reflex.own_limits == 1
    machine.looks(2, web_00=600)  # now it is not throttled any more, and still held up
    assert [ack.reason for ack in machine.told] == ["reflex"]


def test_their_common_group_finds_the_one_of_many_that_nobody_looks_at(tmp_path: Path) -> None:
    machine = Machine(tmp_path, online=40)
    machine.live(seconds=4)
    cold = next(w for w in machine.reflex._online.values() if w not in machine.reflex._hot)
    name = cold.uid.replace("-", "_")
    machine.looks(1, **{name: 500})
    assert machine.told == []
    machine.looks(1, **{name: 500})
    assert [ack.pods for ack in machine.told] == [(cold.uid,)]
    assert len(machine.reflex._hot) == HOT
    machine.reflex.close()


def test_those_that_stall_or_work_most_are_hot_and_the_others_take_turns(tmp_path: Path) -> None:
    machine = Machine(tmp_path, online=20)
    machine.live()
    seen: set[str] = set()
    for _ in range(20):
        machine.pass_ms(1000, web_07=100)
        machine.sample()
        hot = {watch.uid for watch in machine.reflex._hot}
        assert "web-07" in hot
        assert len(hot) <= HOT
        seen |= hot
    assert seen == set(machine.uids)


def test_without_pressure_the_wait_of_some_threads_is_looked_at(tmp_path: Path) -> None:
    machine = Machine(tmp_path, pressure=False)
    waited = {}
    machine.file(machine.groups["web-00"], "cgroup.threads", "71\n72\n")
    for tid in (71, 72):
        (tmp_path / f"proc/{tid}").mkdir()
        waited[tid] = tmp_path / f"proc/{tid}/schedstat"
        waited[tid].write_text("5 0 1\n")
    for _ in range(6):  # it is learnt while it is looked at
        machine.looks(6)
        machine.pass_ms(700)
        machine.sample()
    machine.looks(2)
    machine.told.clear()
    for count in (1, 2):
        waited[72].write_text(f"5 {count * POLL_MS * 700_000} 1\n")
        machine.looks(1)
    assert [ack.pods for ack in machine.told] == [("web-00",)]
    assert machine.told[0].terms["beyond_permille"] == 700


def test_pods_that_come_and_go_are_followed(machine: Machine) -> None:
    machine.live()
    record = machine.census.record
    left = tuple(pod for pod in record.pods if pod.uid == "batch")
    facts = Inventory("n", 2, 2000, 1 << 30, pods=left)
    machine.census = Census(facts, (machine.groups["batch"],), ROOT)
    machine.pass_ms(1000)
    machine.sample()
    machine.looks(3, web_00=900)
    assert machine.told == []
    assert machine.reflex._slices == []


async def test_while_a_pod_is_killed_the_cut_waits_for_the_end(machine: Machine) -> None:
    machine.live()
    machine.obey.evictions.killing = True
    machine.looks(2, web_00=900)
    assert (machine.told, machine.quota_milli()) == ([], START_MILLI)
    machine.obey.evictions.killing = False
    (ack,) = machine.obey.enforce()
    assert (ack.reason, machine.quota_milli()) == ("reflex", 250)


async def test_a_look_that_fails_is_counted_and_the_reflex_lives(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.live()

    failed = asyncio.Event()

    def fail() -> int:
        failed.set()
        raise ValueError("a file that says nothing")

    monkeypatch.setattr(machine.reflex, "poll", fail)
    life = asyncio.create_task(machine.reflex.run())
    await failed.wait()
    assert machine.reflex.failures == 1
    assert machine.reflex._timer is not None
    assert not (life.done() or machine.reflex._timer.cancelled())
    life.cancel()
    await asyncio.gather(life, return_exceptions=True)
    assert machine.reflex._timer.cancelled()


def test_slices_hold_online_pods_only() -> None:
    groups = {
        "a": "kubepods/burstable/a", "b": "kubepods/burstable/b", "c": "kubepods/c",
        "d": "kubepods/besteffort/d", "e": "web/e",
    }  # fmt: skip
    pods = tuple(PodFact(uid, uid, qos="BE" if uid == "d" else "LS") for uid in groups)
    census = Census(Inventory("n", 1, 1, 1, pods=pods), tuple(groups.values()), ROOT)
    assert slices(census) == ["kubepods/burstable", "web"]  # `kubepods` holds best effort too


def test_a_memory_limit_nearly_reached_asks_for_a_sample_at_once_and_not_at_every_look(
    machine: Machine,
) -> None:
    limit, margin = 2 << 30, Policy().evict_memory.limit_margin_bytes
    for name, value in (("memory.max", limit), ("memory.current", 0)):
        machine.file(ROOT, name, f"{value}\n")
    machine.live()
    assert machine.looks(1, be_milli=0) == CALM_POLLS * POLL_MS
    machine.pass_ms(1500, be_milli=0)
    assert machine.looks(2, be_milli=0) == IDLE_MS  # and the limit is far away
    machine.file(ROOT, "memory.current", f"{limit - margin - 1}\n")
    assert machine.looks(2, be_milli=0) == POLL_MS
    assert machine.alarms == 0
    machine.file(ROOT, "memory.current", f"{limit - margin}\n")
    machine.looks(5, be_milli=0)
    assert machine.alarms == machine.reflex.alarms == 1
    machine.looks(6, be_milli=0)
    assert machine.alarms == 3


@pytest.mark.kernel
def test_on_this_kernel_a_service_that_gets_busy_beside_a_job_cuts_it(tmp_path: Path) -> None:
    with real_groups():
        pass  # says so where groups cannot be made
    easily = bench.POLICY.replace("hold_ms", "stall_permille: 50, hold_ms")  # on a busy machine too
    with bench.staged(tmp_path, easily, cpu_idle=False) as staged:
        until = time.monotonic() + patient(40)
        for milli in itertools.cycle((bench.BUSY_MILLI, bench.REST_MILLI)):
            staged.load(milli)
            time.sleep(1.0)  # busy, and calm, for so long
            if staged.agent.metric("reflex_cuts_total"):
                break
            assert time.monotonic() < until, "no cut"
        cuts = [line for line in staged.agent.lines() if line.get("reason") == "reflex"]
        assert cuts
        assert 10 <= cuts[0]["in_force_milli"] < bench.FLOOR_MILLI
