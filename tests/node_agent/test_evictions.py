"""Pods that are given time: asked, stopped by the runtime, handed over; killed, or answered."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import grpc
import pytest

from node_agent import originals
from node_agent.actuators import cpu_quota
from node_agent.executors.cri import Runtime
from node_agent.executors.way import WATCH_MS, Way, choose
from node_agent.journal import Journal
from node_agent.originals import Trees, open_trees
from node_agent.workbench.groups import Groups
from node_agent.workbench.worker import Worker
from schemas.policy import EvictCpu, Eviction, Policy
from schemas.records import Ack, Command
from tests.node_agent.isolation_trees import contents
from tests.node_agent.kernel import eventually, real_groups
from tests.node_agent.polite import ENDED
from tests.node_agent.test_cri import FakeRuntime, serve
from tests.node_agent.test_lease import evict
from tests.node_agent.test_obey import KERNEL, Node
from tests.node_agent.trees import BE, V1_GROUP, V2_GROUP, Crash, NthWrite, group, subtree, trees
from tests.support import patient

KILLED = -9
LOOK_MS = 20


def table(*rows: tuple[str, str, int, bool, Way]) -> list[Any]:
    return [pytest.param(*row, id="-".join(map(str, row[:4]))) for row in rows]


@pytest.mark.parametrize(
    ("executor", "decider", "memory_grace_ms", "has_runtime", "way"),
    table(
        ("auto", "evict_cpu", 0, True, Way("cri", 10_000)),
        ("auto", "evict_cpu", 0, False, Way("term", 10_000)),
        ("auto", "evict_memory", 0, True, Way("kill")),
        ("auto", "evict_memory", 2_000, True, Way("cri", 2_000)),
        ("kill", "evict_cpu", 0, True, Way("term", 10_000)),
        ("kill", "evict_memory", 0, True, Way("kill")),
        ("cri", "evict_memory", 0, False, Way("cri", 0)),
        ("api", "evict_memory", 0, True, Way("api", WATCH_MS, kills=False)),
    ),
)
def test_the_way_is_the_policys_and_what_this_machine_has(
    executor: Any, decider: Any, memory_grace_ms: int, has_runtime: bool, way: Way
) -> None:
    rule = Eviction(executor=executor, memory_grace_ms=memory_grace_ms)
    assert choose(rule, decider, emergency=False, has_runtime=has_runtime) == way
    assert choose(rule, decider, emergency=True, has_runtime=has_runtime) == Way("kill")


def test_what_was_handed_over_is_killed_only_where_the_policy_says_so() -> None:
    rule = Eviction(executor="api", api_kill_after_ms=5_000)
    assert choose(rule, "evict_cpu", emergency=False, has_runtime=True) == Way("api", 5_000)


class Stage:
    """One node on real groups with a pod ``be-1`` that is polite, or will not end."""

    def __init__(self, groups: Groups, folder: Path, *, stubborn: bool = False) -> None:
        self.groups, self.folder = groups, folder
        self.said = folder / "said"
        config = {"said": str(self.said), "stubborn": stubborn}
        self.pod = Worker("tests.node_agent.polite", groups.pod("besteffort", "be-1"), config)
        eventually(self.said.exists, 10, "a worker that may be asked")
        self.trees = open_trees(groups.layout, groups.be_root)
        paths = {uid: f"{groups.be_root}/{uid}" for uid in ("be-1", "be-2")}
        self.node = Node(folder, self.trees, paths)
        self.asked_ms: list[int] = []

    async def start(self, socket: Path | None = None, **keys: Any) -> None:
        policy = Policy(evict_cpu=EvictCpu(enabled=True), eviction=Eviction(**keys))
        runtime = Runtime(socket or self.folder / "none.sock")
        self.node.start(policy, runtime=runtime, wake=self.asked_ms.append)
        await self.node.obey.beat([])

    async def order(self) -> Ack:
        command: Command = replace(
            evict(self.node.starts, ("be-1",), self.node.now_us), decider="evict_cpu"
        )
        acks = await self.node.obey.command(command)
        return acks[0]

    async def step(self, ms: int = 100) -> list[Ack]:
        self.node.now_us += ms * 1000
        return await self.node.obey.step()

    async def until_said(self, seconds: float = 10.0) -> Ack:
        """The next ack; the node's clock keeps pace with real work, slower on a slow machine."""
        until = asyncio.get_running_loop().time() + patient(seconds)
        while True:
            acks = [ack for ack in await self.step(LOOK_MS) if ack.decider == "evict_cpu"]
            if acks:
                return acks[0]
            assert asyncio.get_running_loop().time() < until, "nothing was said"
            await asyncio.sleep(patient(LOOK_MS / 1000))

    def root_milli(self) -> int:
        return cpu_quota.in_force(self.trees.cpu)

    def close(self) -> None:
        self.pod.stop()
        self.node.obey.evictions.close()
        self.trees.close()


@pytest.fixture
def groups() -> Iterator[Groups]:
    with real_groups() as made:
        yield made


@pytest.fixture
def stages(groups: Groups, tmp_path: Path) -> Iterator[Callable[..., Stage]]:
    made: list[Stage] = []

    def make(**how: Any) -> Stage:
        made.append(Stage(groups, tmp_path, **how))
        return made[-1]

    yield make
    for stage in made:
        stage.close()


async def test_a_pod_that_is_asked_ends_by_itself_and_the_bound_on_all_stays(
    stages: Callable[..., Stage],
) -> None:
    stage = stages()
    await stage.start(executor="kill")
    assert stage.root_milli() == 10
    own = stage.groups.directory("cpu", f"{stage.groups.be_root}/be-1")
    started = await stage.order()
    assert (started.outcome, started.reason, started.pods) == ("started", "term", ("be-1",))
    assert stage.asked_ms == [100]
    assert stage.root_milli() == 10
    assert (own / "cpu.idle").read_text() == "0\n"
    ended = await stage.until_said()
    assert (ended.outcome, ended.reason, ended.pods) == ("applied", "", ("be-1",))
    assert ended.command_id == started.command_id
    assert stage.pod.wait(patient(5)) == ENDED
    assert stage.node.obey.evictions.evicted_pods == 1
    assert await stage.step() == []


async def test_whoever_looks_while_a_pod_is_being_killed_leaves_the_order_alone(
    stages: Callable[..., Stage],
) -> None:
    stage = stages()
    await stage.start(grace_ms=0)
    begun = asyncio.create_task(stage.order())
    looked: list[Ack] = []
    while not begun.done():
        looked += [ack for ack in await stage.step(0) if ack.decider == "evict_cpu"]
        await asyncio.sleep(0)
    answer = await begun
    assert (answer.outcome, answer.pods) == ("applied", ("be-1",))
    assert looked == []
    assert stage.node.obey.evictions.evicted_pods == 1
    assert not stage.node.obey.evictions.killing


async def test_a_pod_that_will_not_end_is_killed_when_its_time_is_over(
    stages: Callable[..., Stage],
) -> None:
    stage = stages(stubborn=True)
    await stage.start(executor="kill", grace_ms=2_000)
    assert (await stage.order()).outcome == "started"
    assert await stage.step(1_000) == []
    eventually(lambda: stage.said.read_text() == "asked", 10, "it was asked")
    assert await stage.step(999) == []
    (ended, *_) = await stage.step(1)
    assert (ended.outcome, ended.reason) == ("applied", "killed_after_grace")
    assert stage.pod.wait(patient(5)) == KILLED
    assert stage.root_milli() == 10


async def test_while_a_pod_is_given_time_the_hands_are_free_and_one_asks_for_the_next_look(
    stages: Callable[..., Stage],
) -> None:
    stage = stages(stubborn=True)
    await stage.start(executor="kill", grace_ms=5_000)
    await stage.order()
    for _ in range(5):  # beats and looks together
        stage.node.now_us += 50_000
        assert await stage.node.obey.beat([]) == []
    assert len(stage.asked_ms) <= 3


async def test_memorys_last_gate_waits_for_nobody(stages: Callable[..., Stage]) -> None:
    stage = stages(stubborn=True)
    await stage.start(executor="api", memory_grace_ms=5_000)
    (ack, *_) = await stage.node.obey.beat([evict(9, ("be-1",))])
    assert (ack.outcome, ack.pods) == ("local", ("be-1",))
    assert stage.pod.wait(patient(5)) == KILLED


async def test_what_is_handed_over_is_named_and_answered_when_it_has_gone(
    stages: Callable[..., Stage],
) -> None:
    stage = stages()
    await stage.start(executor="api")
    ack = await stage.order()
    assert (ack.outcome, ack.reason, ack.pods) == ("handed_over", "api", ("be-1",))
    assert await stage.step(20_000) == []
    assert stage.said.read_text() == "ready"  # the node does not touch it
    stage.pod.stop()  # by the kubelet, in earnest
    ended = await stage.until_said()
    assert (ended.outcome, ended.pods) == ("applied", ("be-1",))


@pytest.mark.parametrize(
    ("kill_after_ms", "said"), [(0, "not_gone"), (2_000, "killed_after_grace")]
)
async def test_what_was_handed_over_and_stays_is_said_or_killed_by_policy(
    stages: Callable[..., Stage], kill_after_ms: int, said: str
) -> None:
    stage = stages(stubborn=True)
    await stage.start(executor="api", api_kill_after_ms=kill_after_ms)
    await stage.order()
    (ended, *_) = await stage.step(WATCH_MS)
    assert ended.reason == said
    assert ended.outcome == ("applied" if kill_after_ms else "failed")
    assert stage.pod.alive != bool(kill_after_ms)


async def test_the_runtime_stops_it(stages: Callable[..., Stage], tmp_path: Path) -> None:
    stage = stages()
    fake = FakeRuntime({"be-1": [("s-1", 0)]}, {"s-1": [("c-1", 1)]})
    fake.stopped = lambda _sandbox: stage.pod.stop()
    server = serve(fake, tmp_path / "cri.sock")
    try:
        await stage.start(tmp_path / "cri.sock", grace_ms=3_000)
        started = await stage.order()
        assert (started.outcome, started.reason) == ("started", "cri")
        ended = await stage.until_said()
        assert (ended.outcome, ended.reason, ended.pods) == ("applied", "", ("be-1",))
        assert [one.timeout for one in fake.asked("StopContainer")] == [3]
        assert stage.said.read_text() == "ready"  # no signal of ours
    finally:
        server.stop(grace=None).wait()


async def test_a_runtime_that_refuses_is_passed_over(
    stages: Callable[..., Stage], tmp_path: Path
) -> None:
    stage = stages()
    fake = FakeRuntime({"be-1": [("s-1", 0)]}, refuses=grpc.StatusCode.UNAVAILABLE)
    server = serve(fake, tmp_path / "cri.sock")
    try:
        await stage.start(tmp_path / "cri.sock")
        assert (await stage.order()).reason == "cri"
        ended = await stage.until_said()
        assert (ended.outcome, ended.reason) == ("applied", "cri:UNAVAILABLE")
        assert stage.pod.wait(patient(5)) == ENDED
    finally:
        server.stop(grace=None).wait()


async def test_a_restart_in_the_middle_goes_on_where_the_start_before_was(
    stages: Callable[..., Stage],
) -> None:
    stage = stages(stubborn=True)
    await stage.start(executor="kill", grace_ms=3_000)
    started = await stage.order()
    stage.node.now_us += 1_000_000
    await stage.start(executor="kill", grace_ms=3_000)  # a new start of the agent
    assert stage.pod.alive
    assert await stage.step(1_999) == []
    (ended, *_) = await stage.step(1)
    assert (ended.outcome, ended.reason) == ("applied", "killed_after_grace")
    assert (ended.command_id, ended.pods) == (started.command_id, ("be-1",))
    await stage.start(executor="kill")
    assert await stage.step(60_000) == []  # it was answered: nothing is left of it


async def test_a_kill_that_was_interrupted_is_answered_by_the_next_start_and_not_done_again(
    stages: Callable[..., Stage],
) -> None:
    stage = stages()
    await stage.start()
    command = replace(evict(1, ("be-1",), stage.node.now_us), decider="evict_cpu")
    stage.node.obey.lease.on_command(command, stage.node.now_us, stage.node.obey.facts)
    stage.node.obey.answers.intent(command, "command", ("be-1",))  # and then the process was gone
    stage.node.start(Policy())
    said = [ack for ack in await stage.node.obey.beat([]) if ack.command_id == command.id]
    assert [(ack.outcome, ack.reason) for ack in said] == [("failed", "interrupted")]
    assert stage.pod.alive
    assert await stage.step() == []


async def test_another_start_of_the_kernel_has_other_pods_of_that_name(
    stages: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = stages(stubborn=True)
    await stage.start(executor="kill", grace_ms=1_000)
    await stage.order()
    monkeypatch.setattr("tests.node_agent.test_obey.KERNEL", "q" * 32)
    await stage.start(executor="kill", grace_ms=1_000)
    assert await stage.step(60_000) == []
    assert stage.pod.alive


async def test_a_group_made_anew_under_the_same_path_is_another_pod(
    stages: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = stages(stubborn=True)
    await stage.start(executor="kill", grace_ms=1_000)
    await stage.order()
    monkeypatch.setattr(stage.trees.cpu, "identity", lambda _group: 1)
    (ended, *_) = await stage.step(60_000)
    assert (ended.outcome, ended.pods) == ("applied", ("be-1",))
    assert stage.pod.alive


def braked(mount: Path, version: Literal[1, 2]) -> None:
    """A best-effort root with a pod that has brakes of its own, and so has a group in it."""
    pod = mount / BE / "be-1"
    if version == 1:
        group(mount / BE, V1_GROUP)
        group(pod, V1_GROUP, cpu__cfs_quota_us="50000\n")
        group(pod / "app", V1_GROUP, cpu__cfs_quota_us="20000\n")
    else:
        group(mount / BE, V2_GROUP, cpu__weight="1\n")
        group(pod, V2_GROUP, cpu__weight="1\n", cpu__max="50000 100000\n")
        group(pod / "app", V2_GROUP, cpu__weight="3\n", cpu__max="20000 100000\n")


def said(mount: Path) -> dict[str, str]:
    """Every knob of the tree; a kill is none."""
    return {file: text for file, text in contents(mount).items() if "cgroup." not in file}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("grace_ms", [0, 10_000], ids=["kill", "term"])
@pytest.mark.parametrize("error", [None, errno.EACCES], ids=["killed", "refused"])
async def test_r10_ended_at_every_write_of_an_eviction_the_brakes_are_as_they_were(
    tmp_path: Path, version: Literal[1, 2], grace_ms: int, error: int | None
) -> None:
    """Killed before the n-th write, or refused it: SIGTERM, next start, release-all restore."""
    at, left = 0, True
    while left:
        at += 1
        folder, mount = tmp_path / str(at), tmp_path / str(at) / "cpu"
        braked(mount, version)
        before, write = said(mount), NthWrite(at, error)
        cpu = subtree(mount, version, write)
        node = Node(folder, Trees(cpu, cpu if version == 2 else None), {"be-1": f"{BE}/be-1"})
        eviction = Eviction(executor="kill", grace_ms=grace_ms)
        node.start(Policy(evict_cpu=EvictCpu(enabled=True), eviction=eviction))
        try:
            await node.obey.beat([])
            await node.obey.command(replace(evict(1, ("be-1",), node.now_us), decider="evict_cpu"))
            left = bool(node.obey.release())
        except Crash:
            left = True
        if left and at % 2:
            node.trees = trees(mount, version)
            node.start(Policy())
            await node.obey.step()
            assert node.obey.release() == []
        elif left:
            journal = Journal(folder / "state", KERNEL)
            assert originals.release(trees(mount, version), journal) == []
            journal.close()
        assert said(mount) == before, f"at write {at}"
        left = write.count >= at
    assert at > 8
