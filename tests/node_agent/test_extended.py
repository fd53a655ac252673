"""Extended resources on groups: who gets what, beside suppression, at first sight, not by force."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from node_agent.actuators import extended
from node_agent.actuators.extended import LIMIT, REQUEST, amounts
from node_agent.actuators.knobs import KNOBS
from node_agent.actuators.knobs.extended_cpu import ExtendedCpu
from node_agent.actuators.knobs.extended_memory import ExtendedMemory, held
from node_agent.containers import Amounts, Container
from node_agent.inventory import Pod
from node_agent.isolation import ROOM_US
from node_agent.journal import Journal
from schemas.records import IsolationSettings, PodFact
from tests.node_agent.isolation_trees import (
    BE,
    JOB_POD,
    LS_POD,
    MIB,
    FakeKernel,
    census,
    contents,
    isolation,
    layout,
    make_tree,
)

S = 1_000_000
CPU = IsolationSettings(classes={"BE": {"extended_cpu": 1}})
MEMORY = IsolationSettings(classes={"BE": {"extended_memory": 1}})
PODS = ("be", "job", "ls")
QUOTAS = tuple(f"{group}/cpu.cfs_quota_us" for group in (JOB_POD, f"{JOB_POD}/c1", f"{JOB_POD}/c2"))


def pod(*containers: Container, qos: str = "BE", **facts: int) -> Pod:
    return Pod(PodFact("p", "p", qos=qos, **facts), "kubepods/besteffort/p", containers)  # type: ignore[arg-type]


def asking(name: str, request: Amounts, limit: Amounts, kind: str = "app") -> Container:
    group = f"kubepods/besteffort/p/{name}"
    return Container(name, group, name, kind, request, limit)  # type: ignore[arg-type]


def test_batch_comes_before_mid_and_nothing_native_counts() -> None:
    said = Amounts(cpu_milli=9000, batch_cpu_milli=100, mid_cpu_milli=7000)
    found = amounts(pod(asking("c", said, said)), "cpu_milli")
    assert found["kubepods/besteffort/p"] == {REQUEST: 100, LIMIT: 100}
    said = Amounts(mid_memory_bytes=MIB)
    assert amounts(pod(asking("c", said, said)), "memory_bytes")["kubepods/besteffort/p/c"] == {
        REQUEST: MIB, LIMIT: MIB,
    }  # fmt: skip
    native = Amounts(cpu_milli=9000, memory_bytes=MIB)
    assert amounts(pod(asking("c", native, native)), "cpu_milli") == {}


def test_one_container_without_a_limit_leaves_the_pod_without_one() -> None:
    some, none = Amounts(batch_cpu_milli=500), Amounts()
    found = amounts(pod(asking("a", some, some), asking("b", some, none)), "cpu_milli")
    assert found == {
        "kubepods/besteffort/p": {REQUEST: 1000},
        "kubepods/besteffort/p/a": {REQUEST: 500, LIMIT: 500},
        "kubepods/besteffort/p/b": {REQUEST: 500},
    }


def test_a_sandbox_and_a_container_without_a_group_get_nothing() -> None:
    said = Amounts(batch_cpu_milli=500)
    to_come = replace(asking("a", said, said), group="")
    found = amounts(pod(to_come, Container("x", "kubepods/besteffort/p/x")), "cpu_milli")
    assert found == {"kubepods/besteffort/p": {REQUEST: 500, LIMIT: 500}}


def test_r6_an_online_pod_gets_none_of_it_whatever_is_asked(tmp_path: Path) -> None:
    make_tree(tmp_path / "cgroup", 1)
    before = contents(tmp_path / "cgroup")
    asked = IsolationSettings(classes={"LS": {"extended_cpu": 1, "extended_memory": 1}})
    with isolation(tmp_path / "s", tmp_path / "cgroup", 1, KNOBS, FakeKernel(), PODS) as made:
        made.obey(asked)
        made.beat(0)
        assert made.outcome() == ("refused", "not_for_online:extended_cpu,extended_memory")
    assert contents(tmp_path / "cgroup") == before


def test_a_pod_is_seen_and_set_in_one_beat(tmp_path: Path) -> None:
    mount = tmp_path / "cgroup"
    make_tree(mount, 2)
    kernel = FakeKernel()
    with isolation(tmp_path / "s", mount, 2, KNOBS, kernel, ("be", "ls")) as made:
        made.obey(
            replace(CPU, classes={"BE": {"extended_cpu": 1, "extended_memory": 1, "bvt": -1}})
        )
        made.beat(0)
        kernel.log.clear()
        made.follow(census(PODS), layout(mount, 2), kernel)
        made.beat(1)
        first, *_ = kernel.log
        assert first[0].endswith("memory.max"), "what it lacks from birth comes first"
        assert contents(mount)[f"{JOB_POD}/c1/memory.max"] == str(64 * MIB)
        assert contents(mount)[f"{JOB_POD}/c1/cpu.max"] == "150000 100000"


def quotas(mount: Path) -> list[str]:
    return [contents(mount)[file] for file in QUOTAS]


def test_quotas_make_way_for_the_best_effort_roots_and_come_back(tmp_path: Path) -> None:
    mount = tmp_path / "cgroup"
    make_tree(mount, 1)
    root = mount / BE / "cpu.cfs_quota_us"
    with isolation(tmp_path / "s", mount, 1, [ExtendedCpu()], FakeKernel(), PODS) as made:
        made.obey(CPU)
        made.beat(0)
        assert quotas(mount) == ["200000", "150000", "50000"]
        made.make_room(1000, S)
        assert quotas(mount) == ["-1", "-1", "50000"]
        root.write_text("100000\n")
        made.bound(1000, S)
        made.bound(1600, 2 * S)  # it has only just fallen
        root.write_text("160000\n")
        made.beat(2 * S)
        assert quotas(mount) == ["-1", "-1", "50000"]
        made.bound(1600, S + ROOM_US)
        made.beat(S + ROOM_US)
        assert quotas(mount) == ["-1", "150000", "50000"]
        made.make_room(10, 2 * ROOM_US)
        root.write_text("1000\n")
        assert quotas(mount) == ["-1", "-1", "-1"]
        assert made.outcome() == ("applied", "")
        assert made.keeper.drift == 0
        assert made.release() == []
    assert contents(mount)[f"{JOB_POD}/cpu.shares"] == "1024"


def test_before_the_roots_bound_is_known_no_quota_is_set(tmp_path: Path) -> None:
    mount = tmp_path / "cgroup"
    make_tree(mount, 1)
    with isolation(tmp_path / "s", mount, 1, [ExtendedCpu()], FakeKernel(), PODS) as made:
        made.make_room(0, 1)
        made.obey(CPU)
        made.beat(0)
        assert contents(mount)[QUOTAS[0]] == "-1"
        assert contents(mount)[f"{JOB_POD}/cpu.shares"] == "2048"


def test_a_quota_of_its_own_and_a_smaller_limit_are_kept(tmp_path: Path) -> None:
    mount = tmp_path / "cgroup"
    make_tree(mount, 1)
    (mount / QUOTAS[1]).write_text("30000\n")
    (mount / JOB_POD / "c1/memory.limit_in_bytes").write_text(f"{MIB}\n")
    knobs = [ExtendedMemory(), ExtendedCpu()]
    both = IsolationSettings(classes={"BE": {"extended_cpu": 1, "extended_memory": 1}})
    with isolation(tmp_path / "s", mount, 1, knobs, FakeKernel(), PODS) as made:
        made.obey(both)
        made.beat(0)
        assert contents(mount)[QUOTAS[1]] == "30000"
        assert contents(mount)[f"{JOB_POD}/c1/memory.limit_in_bytes"] == str(MIB)
        assert contents(mount)[f"{JOB_POD}/c2/memory.limit_in_bytes"] == str(8 * MIB)


def test_a_class_that_has_shares_by_order_has_no_others(tmp_path: Path) -> None:
    mount = tmp_path / "cgroup"
    make_tree(mount, 1)
    asked = IsolationSettings(classes={"BE": {"extended_cpu": 1, "cpu_shares": 20}})
    with isolation(tmp_path / "s", mount, 1, KNOBS, FakeKernel(), PODS) as made:
        made.obey(asked)
        made.beat(0)
        assert contents(mount)[f"{JOB_POD}/cpu.shares"] == "20"
        assert contents(mount)[QUOTAS[0]] == "200000"
        assert made.keeper.drift == 0


def test_more_in_use_than_the_limit_is_waited_for_and_nobody_is_killed(tmp_path: Path) -> None:
    mount = tmp_path / "cgroup"
    make_tree(mount, 2)
    group = mount / JOB_POD / "c1"
    (group / "memory.stat").write_text(f"anon {100 * MIB}\nactive_file 0\ninactive_file {MIB}\n")
    (group / "memory.current").write_text(f"{101 * MIB}\n")
    with isolation(tmp_path / "s", mount, 2, [ExtendedMemory()], FakeKernel(), PODS) as made:
        made.obey(MEMORY)
        made.beat(0)
        assert made.outcome() == ("failed", "failed:extended_memory:EBUSY")
        assert contents(mount)[f"{JOB_POD}/c1/memory.max"] == "max"
        assert contents(mount)[f"{JOB_POD}/c2/memory.max"] == str(8 * MIB), "alone"
        (group / "memory.current").write_text(f"{20 * MIB}\n")
        made.beat(31 * S)
        assert made.outcome() == ("applied", "")
        assert contents(mount)[f"{JOB_POD}/c1/memory.max"] == str(64 * MIB)
        (group / "memory.current").write_text(f"{64 * MIB}\n")  # it moves: no drift
        made.beat(33 * S)
        assert made.keeper.drift == 0


def test_v1_says_itself_that_more_is_in_use(tmp_path: Path) -> None:
    mount = tmp_path / "cgroup"
    make_tree(mount, 1)
    kernel = FakeKernel(1, errno.EBUSY)
    with isolation(tmp_path / "s", mount, 1, [ExtendedMemory()], kernel, PODS) as made:
        made.obey(MEMORY)
        made.beat(0)
        assert made.outcome() == ("failed", "failed:extended_memory:EBUSY")
    journal = Journal(tmp_path / "s", "k" * 32)
    assert journal.state.kept
    journal.close()


def test_memory_held_is_what_is_no_cache() -> None:
    assert held(100, "anon 5\nactive_file 30\ninactive_file 20\nfile 60") == 50
    assert held(10, "inactive_file 30") == 0
    assert held(10, "") == 10


def test_a_normalised_machine_gives_a_smaller_quota(tmp_path: Path) -> None:
    mount = tmp_path / "cgroup"
    make_tree(mount, 2)
    with isolation(tmp_path / "s", mount, 2, [ExtendedCpu()], FakeKernel(), PODS) as made:
        faster = census(PODS)
        faster = replace(faster, record=replace(faster.record, cpu_ratio_permille=1200))
        made.follow(faster, layout(mount, 2), FakeKernel())
        made.obey(CPU)
        made.beat(0)
        assert contents(mount)[f"{JOB_POD}/cpu.max"] == "166667 100000"


@pytest.mark.parametrize("of", ["cpu_milli", "memory_bytes"])
def test_pods_that_no_kubelet_has_named_are_left_alone(of: extended.Resource) -> None:
    assert amounts(pod(Container("x", "kubepods/besteffort/p/x")), of) == {}
    assert amounts(pod(), of) == {}
    assert LS_POD not in amounts(pod(), of)
