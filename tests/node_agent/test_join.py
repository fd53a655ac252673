"""Pods of groups and of the kubelet joined: every layout, every way in which the two disagree."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from node_agent import join as join_module
from node_agent.cgroup.layout import Layout, detect
from node_agent.cgroup.names import pod_group
from node_agent.discovery import RESCAN_US, Discovery
from node_agent.inventory import Census, Pod
from node_agent.inventory_file import InventoryFile
from node_agent.kubelet import roll
from node_agent.kubelet.cpu_manager import CpuManagerState
from node_agent.pod_groups import TREES_US, TURN_US
from tests.node_agent.kernels import KERNELS
from tests.node_agent.kubelet.pods import container, pod
from tests.node_agent.kubelet.said import Said

IDS = [f"{digit}" * 64 for digit in "abcdef"]
WEB = "11111111-2222-3333-4444-555555555555"
JOB = "99999999-2222-3333-4444-555555555555"
BEST_EFFORT = {"koordinator.sh/qosClass": "BE"}
BURSTABLE = {"qosClass": "Burstable"}
TREES = [
    "kubepods",
    "kubepods.slice",
    "kubelet.slice/kubelet-kubepods.slice",
    "kind/kubelet/kubepods",
]


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """A machine that says what it has, with no group yet."""
    shutil.copytree(KERNELS / "v2-kind", tmp_path / "k")
    shutil.rmtree(tmp_path / "k/sys/fs/cgroup/system.slice")
    return detect(str(tmp_path / "k"))


def make(layout: Layout, *groups: str, running: bool = False) -> None:
    for group in groups:
        directory = Path(layout.anchor) / group
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "cgroup.events").write_text(f"populated {int(running)}\nfrozen 0\n")


def machine(layout: Layout, kubelet: Said | None, **words: Any) -> Discovery:
    return Discovery("n", layout, first_rev=1, kubelet=kubelet, **words)


def web(*ids: str, **words: Any) -> dict[str, Any]:
    names = ["app", "log"][: max(len(ids), 1)]
    asked = [container(name, {"cpu": "1", "memory": "1Gi"}) for name in names]
    found = {name: f"containerd://{each}" for name, each in zip(names, ids, strict=False)}
    return pod(WEB, "web-1", *asked, ids=found, **{"status": BURSTABLE, **words})


def job(**words: Any) -> dict[str, Any]:
    asked = {"kubernetes.io/batch-cpu": "2000"}
    said = {"labels": BEST_EFFORT, "status": {"qosClass": "BestEffort"}}
    return pod(JOB, "job-1", container("work", asked, asked), **{**said, **words})


def by_uid(census: Census) -> dict[str, Pod]:
    return {each.fact.uid: each for each in census.pods()}


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize(
    "form", ["cri-containerd-{}.scope", "crio-{}.scope", "docker-{}.scope", "{}"]
)
def test_names_places_and_containers_come_together(layout: Layout, tree: str, form: str) -> None:
    online, batch = pod_group(tree, "burstable", WEB), pod_group(tree, "besteffort", JOB)
    app, log, sandbox = (form.format(each) for each in IDS[:3])
    make(layout, f"{online}/{app}", f"{online}/{log}", f"{online}/{sandbox}", batch)
    make(layout, f"{online}/crio-conmon-{IDS[0]}.scope")
    census = machine(layout, Said(web(*IDS[:2]), job())).poll(0)
    pods = by_uid(census)
    assert census.be_root is not None
    assert batch.startswith(f"{census.be_root}/")
    found = pods[WEB]
    assert (found.group, found.fact.name, found.fact.qos) == (online, "web-1", "LS")
    assert found.fact.cpu_request_milli == 2000
    assert [(c.name, c.group, c.kind) for c in found.containers] == [
        ("app", f"{online}/{app}", "app"),
        ("log", f"{online}/{log}", "app"),
        ("", f"{online}/{sandbox}", "unknown"),
    ]
    assert pods[JOB].group == batch
    assert (pods[JOB].fact.qos, pods[JOB].fact.evictable) == ("BE", True)
    assert pods[JOB].containers[0].limits.batch_cpu_milli == 2000


def test_of_a_pod_that_only_its_group_names_nobody_takes_anything(layout: Layout) -> None:
    make(layout, f"kubepods/besteffort/pod{JOB}", f"kubepods/pod{WEB}/{IDS[0]}")
    kubelet = Said()
    source = machine(layout, kubelet)
    pods = by_uid(source.poll(0))
    assert (pods[JOB].fact.qos, pods[JOB].fact.evictable) == ("BE", False)
    assert (pods[WEB].fact.qos, pods[WEB].fact.name) == ("LSR", WEB)
    assert [(c.id, c.kind) for c in pods[WEB].containers] == [(IDS[0], "unknown")]
    assert kubelet.woken == 1, "the kubelet is asked for pods that it has not named"
    source.poll(RESCAN_US)
    assert kubelet.woken == 1, "and once for each"
    kubelet.say(web(IDS[0]), job())
    pods = by_uid(source.poll(2 * RESCAN_US))
    assert (pods[JOB].fact.name, pods[JOB].fact.evictable) == ("job-1", True)
    assert pods[WEB].fact.name == "web-1"
    assert source.left_out() == 0
    kubelet.say(web(IDS[0]), job(), {"metadata": "bad"})
    source.poll(3 * RESCAN_US)
    assert source.left_out() == 1


def test_a_pod_without_a_group_yet_counts_where_its_group_is_going_to_be(layout: Layout) -> None:
    make(
        layout,
        "kubepods.slice/kubepods-besteffort.slice",
        "kubepods.slice/kubepods-burstable.slice",
    )
    kubelet = Said(web(), job())
    source = machine(layout, kubelet)
    pods = by_uid(source.poll(0))
    group = pod_group("kubepods.slice", "burstable", WEB)
    assert (pods[WEB].group, pods[WEB].fact.cpu_request_milli) == (group, 1000)
    assert pods[JOB].group == pod_group("kubepods.slice", "besteffort", JOB)
    first = source.poll(RESCAN_US)
    make(layout, group)
    assert by_uid(source.poll(2 * RESCAN_US))[WEB].group == group
    assert source.poll(2 * RESCAN_US).record.pods_rev == first.record.pods_rev, (
        "it is where we said"
    )
    kubelet.say(web(status={**BURSTABLE, "phase": "Succeeded"}), job())
    assert by_uid(source.poll(3 * RESCAN_US))[WEB].fact.terminating
    shutil.rmtree(Path(layout.anchor) / group)
    assert WEB not in by_uid(source.poll(4 * RESCAN_US)), "it has ended and its group has gone"


def test_without_a_tree_there_is_no_place_to_come(layout: Layout) -> None:
    make(layout, "system.slice")
    source = machine(layout, Said(web(), job()))
    assert source.poll(0).record.pods == ()
    assert "mount the host's cgroups" in source.error
    make(layout, "kubepods/burstable")
    assert len(source.poll(TREES_US).record.pods) == 2
    assert source.error == ""


def test_an_answer_that_leaves_pods_out_takes_nobody_away(layout: Layout) -> None:
    make(layout, f"kubepods/burstable/pod{WEB}", f"kubepods/besteffort/pod{JOB}")
    waiting = pod("77777777-0000-0000-0000-000000000000", "soon", status=BURSTABLE)
    kubelet = Said(web(), job(), waiting)
    source = machine(layout, kubelet)
    full = source.poll(0)
    assert len(full.record.pods) == 3
    kubelet.say()  # a kubelet that has just started
    assert source.poll(RESCAN_US) is full
    kubelet.say(waiting)
    assert source.poll(2 * RESCAN_US) is full
    kubelet.say_raw(b'{"kind": "Status", "message": "starting"}')
    assert source.poll(3 * RESCAN_US) is full
    kubelet.say()
    source.poll(4 * RESCAN_US)
    later = by_uid(source.poll(4 * RESCAN_US + roll.GRACE_US))
    assert set(later) == {WEB, JOB}, "only what has neither a name nor a group is let go"
    assert not later[JOB].fact.terminating
    shutil.rmtree(Path(layout.anchor) / "kubepods/besteffort" / f"pod{JOB}")
    source.poll(5 * RESCAN_US + roll.GRACE_US)
    assert set(by_uid(source.poll(6 * RESCAN_US + 2 * roll.GRACE_US))) == {WEB}


def test_a_restarted_container_is_found_and_the_dying_one_is_no_longer_it(layout: Layout) -> None:
    group = f"kubepods/burstable/pod{WEB}"
    make(layout, f"{group}/{IDS[0]}")
    kubelet = Said(web(IDS[0]))
    source = machine(layout, kubelet)
    first = source.poll(0)
    kubelet.say(web(IDS[1]))
    now = RESCAN_US
    assert source.poll(now).pods()[0].containers[0].group == "", "named, and not made yet"
    make(layout, f"{group}/{IDS[1]}")
    census = source.poll(now := now + RESCAN_US)
    assert [(c.name, c.id, c.group) for c in census.pods()[0].containers] == [
        ("app", IDS[1], f"{group}/{IDS[1]}"),
        ("", IDS[0], f"{group}/{IDS[0]}"),
    ]
    assert census.record is first.record, "no other revision for a container"
    shutil.rmtree(Path(layout.anchor) / group / IDS[0])
    assert source.poll(now + RESCAN_US) is census, "in its turn"
    assert len(source.poll(now + TURN_US).pods()[0].containers) == 1


def test_static_pods_are_found_by_their_hash(layout: Layout) -> None:
    digest = "8c1d2e3f405162738495a6b7c8d9e0f1"
    make(layout, f"kubepods/burstable/pod{digest}")
    mirror = pod(
        "55555555-0000-0000-0000-000000000000",
        "apiserver-node-1",
        annotations={"kubernetes.io/config.hash": digest, "kubernetes.io/config.mirror": digest},
        status=BURSTABLE,
    )
    (found,) = machine(layout, Said(mirror)).poll(0).pods()
    assert (found.fact.name, found.group) == ("apiserver-node-1", f"kubepods/burstable/pod{digest}")


def test_a_uid_of_a_form_of_its_own_is_found_where_the_kubelet_puts_it(layout: Layout) -> None:
    make(layout, "kubepods/burstable/podMy-Static_Pod", "kubepods/besteffort")
    static = pod("My-Static_Pod", "own", status=BURSTABLE)
    (found,) = machine(layout, Said(static)).poll(0).pods()
    assert found.group == "kubepods/burstable/podMy-Static_Pod"


def test_of_several_groups_of_one_pod_the_one_in_use_counts(layout: Layout) -> None:
    old, new = f"kubepods/burstable/pod{WEB}", pod_group("kubepods.slice", "burstable", WEB)
    make(layout, old, "kubepods.slice/kubepods-besteffort.slice")
    make(layout, new, running=True)
    source = machine(layout, Said(web()))
    assert by_uid(source.poll(0))[WEB].group == new
    assert source.refused == {old: f"has the uid of {new!r}"}


def test_the_tree_of_the_kubelet_that_is_asked_bounds_best_effort_work(layout: Layout) -> None:
    inner = "kind/kubelet/kubepods"
    make(layout, f"kubepods/besteffort/pod{WEB[:-1]}6", f"kubepods/burstable/pod{WEB[:-1]}7")
    make(layout, f"{inner}/besteffort/pod{JOB}", f"{inner}/burstable/pod{WEB}")
    source = machine(layout, Said(web(), job()))
    census = source.poll(0)
    assert census.be_root == f"{inner}/besteffort"
    assert f"kubepods/besteffort/pod{WEB[:-1]}6" in source.refused, "it is another kubelet's"
    assert machine(layout, None).poll(0).be_root == "kubepods/besteffort"


def test_who_calls_itself_best_effort_and_asks_natively_is_taken_for_online(layout: Layout) -> None:
    make(layout, f"kubepods/burstable/pod{JOB}", "kubepods/besteffort")
    source = machine(layout, Said(job(status=BURSTABLE)))
    (found,) = source.poll(0).pods()
    assert (found.fact.qos, found.fact.priority_class) == ("LS", "batch")
    assert source.joined.notes == {
        f"kubepods/burstable/pod{JOB}": "calls itself best-effort and is not below the"
        " best-effort root"
    }


def test_an_online_pod_below_the_best_effort_root_is_named_and_never_a_victim(
    layout: Layout,
) -> None:
    make(layout, f"kubepods/besteffort/pod{WEB}")
    labels = {"koordinator.sh/qosClass": "LS"}
    source = machine(layout, Said(web(labels=labels, status={"qosClass": "BestEffort"})))
    assert source.poll(0).pods() == ()
    assert "overlaps the best-effort root" in source.refused[f"kubepods/besteffort/pod{WEB}"]


@pytest.mark.parametrize(
    ("words", "evictable"),
    [
        ({}, False),
        ({"spec": {"priority": 2_000_001_000}}, False),
        ({"spec": {"priority": 5500}}, True),
        ({"labels": {"koordinator.sh/priority-class": "free"}}, True),
        ({"labels": BEST_EFFORT}, True),
        ({"labels": BEST_EFFORT, "annotations": {"slackwater.io/evictable": "false"}}, False),
    ],
)
def test_a_daemon_that_asks_for_nothing_is_no_victim(
    layout: Layout, words: dict[str, Any], evictable: bool
) -> None:
    make(layout, f"kubepods/besteffort/pod{JOB}")
    said = pod(JOB, "daemon", status={"qosClass": "BestEffort"}, **words)
    (found,) = machine(layout, Said(said)).poll(0).pods()
    assert (found.fact.qos, found.fact.evictable) == ("BE", evictable)


def test_exclusive_cpus_of_the_kubelet_are_pinned_to_their_pod(
    layout: Layout, tmp_path: Path
) -> None:
    make(layout, f"kubepods/pod{WEB}/{IDS[0]}", f"kubepods/burstable/pod{JOB}")
    state = tmp_path / "cpu_manager_state"
    state.write_text(
        '{"policyName":"static","defaultCpuSet":"0-24,35-72,83-94",'
        f'"entries":{{"{WEB}":{{"app":"25-34,73-82"}}}},"checksum":1}}'
    )
    kubelet = Said(web(IDS[0], status={"qosClass": "Guaranteed"}), reserved_cpus="0-1")
    source = machine(layout, kubelet, cpu_manager=CpuManagerState(str(state)))
    census = source.poll(0)
    exclusive = (*range(25, 35), *range(73, 83))
    found = by_uid(census)[WEB]
    assert (found.fact.cpus, found.containers[0].cpus) == (exclusive, exclusive)
    assert census.record.capabilities["cpu_manager_static"]
    assert census.record.reserved_cpus == "0-1"
    state.write_text('{"policyName":"none","defaultCpuSet":"","checksum":1}')
    later = source.poll(RESCAN_US)
    assert by_uid(later)[WEB].fact.cpus == ()
    assert not later.record.capabilities["cpu_manager_static"]


def test_the_place_that_a_scheduler_noted_names_zones_by_their_place(layout: Layout) -> None:
    nodes = Path(layout.root) / "sys/devices/system/node"
    for number, cpus in ((0, "0"), (8, "")):
        (nodes / f"node{number}").mkdir(parents=True)
        (nodes / f"node{number}/cpulist").write_text(f"{cpus}\n")
        (nodes / f"node{number}/meminfo").write_text(f"Node {number} MemTotal:  1000 kB\n")
    make(layout, f"kubepods/burstable/pod{WEB}")
    place = '{"numaNodeResources": [{"node": 8}, {"node": 3}]}'
    said = web(annotations={"scheduling.koordinator.sh/resource-status": place})
    census = machine(layout, Said(said)).poll(0)
    assert [(zone.name, zone.cpu_milli) for zone in census.record.zones] == [
        ("node0", 1000), ("node8", 0),
    ]  # fmt: skip
    assert census.record.pods[0].numa_nodes == (1,)


YARN = """
node:
  labels: {pool: a}
groups:
  - match: hadoop-yarn/container_*
    base: besteffort
    qos: BE
    priority_class: batch
    host_app: true
    workload: yarn/tasks
    recoverable: true
  - {match: system.slice/nginx.service, qos: LS, priority_class: prod, host_app: true}
"""


@pytest.mark.parametrize("tree", ["kubepods", "kubepods.slice"])
def test_yarn_containers_are_host_applications_beside_the_pods(
    layout: Layout, tmp_path: Path, tree: str
) -> None:
    be = pod_group(tree, "besteffort", JOB).rpartition("/")[0]
    task = f"{be}/hadoop-yarn/container_e17_1410901177871_0001_01_000005"
    make(layout, task, f"{be}/hadoop-yarn/other", "system.slice/nginx.service")
    make(layout, pod_group(tree, "besteffort", JOB))
    path = tmp_path / "inventory.yaml"
    path.write_text(YARN)
    source = machine(layout, Said(job()), file=InventoryFile(str(path)))
    census = source.poll(0)
    pods = by_uid(census)
    assert set(pods) == {JOB, task, "system.slice/nginx.service"}
    fact = pods[task].fact
    assert (fact.name, fact.qos, fact.priority_class) == (task.rpartition("/")[2], "BE", "batch")
    assert (fact.host_app, fact.workload, fact.recoverable) == (True, "yarn/tasks", True)
    assert pods["system.slice/nginx.service"].fact.host_app
    assert census.record.labels == {"pool": "a"}
    make(layout, f"{be}/hadoop-yarn/container_e17_1410901177871_0001_01_000006")
    assert len(source.poll(RESCAN_US).record.pods) == 4


def test_the_file_counts_before_kubelet_and_groups(layout: Layout, tmp_path: Path) -> None:
    group = f"kubepods/burstable/pod{WEB}"
    make(layout, group, "kubepods/besteffort")
    path = tmp_path / "inventory.yaml"
    path.write_text(f"pods: [{{uid: mine, cgroup: {group}, name: by-hand}}]\n")
    source = machine(layout, Said(), file=InventoryFile(str(path)))
    (found,) = source.poll(0).pods()
    assert (found.fact.uid, found.fact.name) == ("mine", "by-hand")


def test_a_rule_below_a_kubelet_s_group_waits_for_the_kubelet(
    layout: Layout, tmp_path: Path
) -> None:
    make(layout, "system.slice/nginx.service")
    path = tmp_path / "inventory.yaml"
    path.write_text(YARN)
    source = machine(layout, None, file=InventoryFile(str(path)), kubernetes=False)
    assert [each.name for each in source.poll(0).record.pods] == ["nginx.service"]
    assert source.error.endswith("say --kubepods")


@pytest.mark.parametrize("name", [b"\x01", b"a\x7f", b"\xff\xfe", b"\xe2\x80\xae"])
def test_a_group_of_an_unsayable_name_is_left_out_alone(
    layout: Layout, name: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    make(layout, "demo/a")
    (Path(layout.anchor) / "demo" / os.fsdecode(name)).mkdir()
    source = machine(layout, None, roots=("demo/*",))
    assert source.poll(0).groups == ("demo/a",)
    assert source.left_out() == 1
    assert all(record.getMessage().isascii() for record in caplog.records)


def test_more_groups_than_a_sample_can_name(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join_module, "MAX_PODS", 3)
    make(layout, f"kubepods/burstable/pod{WEB}", *(f"demo/g{n}" for n in range(5)))
    source = machine(layout, Said(web()), roots=("demo/*",))
    census = source.poll(0)
    assert len(census.record.pods) == 3
    assert WEB in by_uid(census), "the kubelet's pods come first"
    assert source.left_out() == 3
