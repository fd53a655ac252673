from __future__ import annotations

import os
import shutil
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from node_agent.cgroup.cpulist import parse_cpu_list
from node_agent.cgroup.layout import Layout, detect
from node_agent.discovery import Discovery
from node_agent.inventory import InventoryError
from node_agent.inventory_file import FILE_BYTES, InventoryFile, load
from node_agent.inventory_node import HOTPLUG_US, NodeFacts, NodeFactsError, node_facts
from node_agent.process import source_for
from node_agent.settings import Settings
from schemas.records import BurstWish, PodFact
from tests.node_agent.kernels import KERNELS

FULL = """
best_effort_root: demo/besteffort
node:
  cpu_allocatable_milli: 1900
  memory_allocatable_bytes: 8000000000
  cpu_reserved_milli: 100
  reserved_cpus: 0-1
  system_cpus: 3
  labels: {pool: demo}
  annotations: {slackwater.io/policy: "suppress: {floor_milli: 20}"}
pods:
  - uid: web-0
    cgroup: /demo/online/web/
    name: web
    namespace: shop
    workload: shop/web
    qos: LS
    priority_class: prod
    priority: 9500
    requests: {cpu_milli: 500, memory_bytes: 1024}
    limits: {cpu_milli: 1000}
    cpus: 2,4-5
    cpu_burst: {policy: auto, quota_burst_percent: 200}
    host_app: true
  - uid: job-0
    cgroup: demo/besteffort/job
    qos: BE
    priority_class: batch
    evictable: false
    opted_in: true
    eviction_priority: -7
    sub_priority: 5700
    evict_features: [memory, be_cpu]
    recoverable: false
    checkpointed: true
    retries_left: 2
"""


@pytest.fixture
def layout() -> Layout:
    return detect(str(KERNELS / "v2-ubuntu"))


def write(path: Path, text: str) -> str:
    """Replace the file so that its stamp surely differs."""
    new = path.with_suffix(".new")
    new.write_text(textwrap.dedent(text))
    new.replace(path)
    return str(path)


def from_file(path: str, layout: Layout, first_rev: int = 1) -> Discovery:
    """A machine of which the file says all."""
    return Discovery("n", layout, first_rev=first_rev, kubernetes=False, file=InventoryFile(path))


def file_of(source: Discovery) -> InventoryFile:
    assert source.file is not None
    return source.file


def test_every_field_arrives(tmp_path: Path, layout: Layout) -> None:
    path = write(tmp_path / "inventory.yaml", FULL)
    census = from_file(path, layout, first_rev=7).poll(0)
    record = census.record
    assert (record.node, record.pods_rev, record.cpu_capacity_milli) == ("n", 7, 24_000)
    assert (record.cpu_allocatable_milli, record.cpu_reserved_milli) == (1900, 100)
    assert (record.memory_capacity_bytes, record.labels) == (131932508 * 1024, {"pool": "demo"})
    assert record.annotations == {"slackwater.io/policy": "suppress: {floor_milli: 20}"}
    job, web = record.pods
    assert job == PodFact(
        uid="job-0",
        name="job-0",
        qos="BE",
        qos_said=True,
        priority_class="batch",
        evictable=False,
        opted_in=True,
        eviction_priority=-7,
        sub_priority=5700,
        evict_features=("memory", "be_cpu"),
        recoverable=False,
        checkpointed=True,
        retries_left=2,
    )
    assert web == PodFact(
        uid="web-0",
        name="web",
        namespace="shop",
        workload="shop/web",
        qos="LS",
        qos_said=True,
        priority_class="prod",
        priority=9500,
        cpu_request_milli=500,
        memory_request_bytes=1024,
        cpu_limit_milli=1000,
        host_app=True,
        cpus=(2, 4, 5),
        cpu_burst=BurstWish(policy="auto", quota_burst_percent=200),
    )
    assert (record.reserved_cpus, record.system_cpus) == ("0-1", "3")
    assert census.groups == ("demo/besteffort/job", "demo/online/web")
    assert census.be_root == "demo/besteffort"
    assert [pod.best_effort for pod in census.pods()] == [True, False]


POD = "pods:\n  - uid: a\n    cgroup: g/a\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pods: [", "not YAML"),
        ("[]", "the file: expected keys"),
        ("pod: []", "unknown key 'pod'; allowed: best_effort_root, node, pods"),
        ("pods: {}", "pods: expected a list"),
        ("node: {cpu: 1}", "node: unknown key 'cpu'"),
        ("node: {cpu_reserved_milli: -1}", r"node.cpu_reserved_milli: -1 is outside"),
        ("node: {cpu_reserved_milli: true}", "expected a whole number, found bool True"),
        ("node: {cpu_reserved_milli: 1.5}", "expected a whole number, found float"),
        ("node: {labels: {a: 1}}", "node.labels.a: expected text"),
        ("pods: [{cgroup: g/a}]", r"pods\[0\].uid: missing"),
        ("pods: [{uid: a}]", r"pods\[0\].cgroup: missing"),
        ("pods: [{uid: a, cgroup: /}]", "names the hierarchy root"),
        ("pods: [{uid: a, cgroup: ''}]", "expected text, found nothing"),
        ("pods: [{uid: a, cgroup: g/../b}]", r"contains '\.\.'"),
        (POD + "    qos: BEST", "'BEST' is unknown; allowed: LSE, LSR, LS, BE, SYSTEM"),
        (POD + "    priority_class: high", "allowed: prod, mid, batch, free"),
        (POD + "    qos: BE\n    priority_class: prod", "contradict each other"),
        (POD + "    qos: LSR\n    priority_class: batch", "contradict each other"),
        (POD + "    cpus: 3-1", "cpus: expected CPUs such as 0-3,8"),
        (POD + "    cpus: [1]", "cpus: expected text, found list"),
        (POD + "    cpu_burst: {policy: all}", "cpu_burst: Invalid enum value"),
        (POD + "    cpu_burst: {percent: 1}", "cpu_burst: unknown key 'percent'"),
        ("node: {reserved_cpus: x}", "node.reserved_cpus: expected CPUs"),
        (POD + "    priority: high", "priority: expected a whole number"),
        (POD + "    evictable: 1", "evictable: expected true or false"),
        (POD + "    recoverable: often", "recoverable: expected true or false"),
        (POD + "    retries_left: 4294967296", "retries_left: 4294967296 is outside"),
        (POD + "    sub_priority: 1.5", "sub_priority: expected a whole number"),
        (POD + "    evict_features: []", "evict_features: expected a list of features"),
        (
            POD + "    evict_features: [disk]",
            r"evict_features\[0\]: 'disk' is unknown; allowed: be_",
        ),
        (POD + "    requests: {cpu: 1}", "requests: unknown key 'cpu'; allowed: cpu_milli"),
        (POD + "    limits: {memory_bytes: 1Gi}", "limits.memory_bytes: expected a whole number"),
        (POD + "  - uid: a\n    cgroup: g/b", r"pods\[1\].uid: 'a' is also pods\[0\]'s"),
        (POD + "  - uid: b\n    cgroup: g/a/", r"pods\[1\].cgroup: 'g/a' is also pods\[0\]'s"),
        (POD + "    qos: BE", "no best-effort root is set"),
        ("best_effort_root: b\n" + POD + "    qos: BE", "is not below 'b'"),
        ("best_effort_root: g/a\n" + POD + "    qos: BE", "is not below 'g/a'"),
        ("best_effort_root: g\n" + POD, "overlaps the best-effort root 'g'"),
        ("best_effort_root: g/a/x\n" + POD, "overlaps the best-effort root"),
        ("best_effort_root: ..\n", "best_effort_root: group path"),
        ("node: {third_party_cpu_milli: -1}", "third_party_cpu_milli: -1 is outside"),
        ("node: {cpu_ratios: {}}", "cpu_ratios: expected a list of CPU models"),
        ("node: {cpu_ratios: [{model: x}]}", r"cpu_ratios\[0\].base: missing"),
        ("node: {cpu_ratios: [{base: 1000}]}", r"cpu_ratios\[0\].model: missing"),
        ("node: {cpu_ratios: [{model: x, base: 999}]}", "base: 999 is outside 1000 .. 5000"),
        ("groups: {}", "groups: expected a list of groups"),
        ("groups: [{qos: BE}]", r"groups\[0\].match: missing; name a pattern"),
        ("groups: [{match: /}]", r"groups\[0\].match: group path '/' names the hierarchy root"),
        ("groups: [{match: a/../*}]", r"groups\[0\].match: .* contains '\.\.'"),
        ("groups: [{match: a, base: top}]", "'top' is unknown; allowed: root, kubepods"),
        ("groups: [{match: a, uid: b}]", "unknown key 'uid'; allowed: match, base"),
        ("groups: [{match: a, qos: BE, priority_class: prod}]", "contradict each other"),
    ],
)
def test_a_wrong_file_is_refused_with_file_key_and_remedy(
    tmp_path: Path, text: str, message: str
) -> None:
    path = write(tmp_path / "inventory.yaml", text)
    with pytest.raises(InventoryError, match=message) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_the_command_lines_root_wins(tmp_path: Path) -> None:
    path = write(tmp_path / "i.yaml", "best_effort_root: x\n" + POD + "    qos: BE")
    assert load(path, be_root="g")[2] == "g"


def test_the_agent_is_started_with_a_file_and_the_command_line_s_root(
    tmp_path: Path, layout: Layout
) -> None:
    path = Path(write(tmp_path / "i.yaml", POD + "    qos: BE"))
    settings = Settings("n", "", "", tmp_path, inventory=path, be_root="g")
    census = source_for(settings, layout).poll(0)
    assert (census.be_root, [pod.uid for pod in census.record.pods]) == ("g", ["a"])
    both = source_for(replace(settings, kubepods=True, be_root="kubepods.slice"), layout)
    with pytest.raises(InventoryError, match=r"is not below 'kubepods\.slice'"):
        both.poll(0)


def test_reload_on_change_and_the_last_good_one_holds(tmp_path: Path, layout: Layout) -> None:
    path = tmp_path / "inventory.yaml"
    source = from_file(write(path, POD), layout, first_rev=1)
    first = source.poll(0)
    assert source.poll(1) is first
    write(path, POD + "    priority: 5")
    second = source.poll(2)
    assert (second.record.pods_rev, second.record.pods[0].priority) == (2, 5)
    write(path, POD + "    priority: oops")
    assert source.poll(3) is second
    assert "priority" in file_of(source).error
    assert source.poll(4) is second
    assert file_of(source).reload_errors == 1, (
        "one bad content is one error, however often it is polled"
    )
    path.rename(path.with_suffix(".away"))
    assert source.poll(5) is source.poll(6) is second
    assert file_of(source).reload_errors == 2
    path.with_suffix(".away").rename(path)
    assert source.poll(7) is second
    assert (file_of(source).reload_errors, "priority" in file_of(source).error) == (3, True)
    write(path, POD + "    priority: 5\n")
    assert source.poll(8) is second, "the same state has the same revision"
    assert file_of(source).error == ""


def test_the_order_of_the_file_does_not_matter(tmp_path: Path, layout: Layout) -> None:
    path = tmp_path / "inventory.yaml"
    pods = ["  - {uid: b, cgroup: g/b}\n", "  - {uid: a, cgroup: g/a}\n"]
    source = from_file(write(path, "pods:\n" + "".join(pods)), layout, first_rev=1)
    first = source.poll(0)
    assert [pod.uid for pod in first.record.pods] == ["a", "b"]
    write(path, "pods:\n" + "".join(reversed(pods)))
    assert source.poll(1) is first


def test_a_moved_group_is_a_new_revision(tmp_path: Path, layout: Layout) -> None:
    path = tmp_path / "inventory.yaml"
    source = from_file(write(path, POD), layout, first_rev=1)
    assert source.poll(0).record.pods_rev == 1
    write(path, POD.replace("g/a", "g/b"))
    assert source.poll(1).record.pods_rev == 2


def test_the_first_file_must_be_good(tmp_path: Path, layout: Layout) -> None:
    with pytest.raises(InventoryError, match="write the file"):
        from_file(str(tmp_path / "none.yaml"), layout, first_rev=1).poll(0)
    with pytest.raises(InventoryError, match="not YAML"):
        from_file(write(tmp_path / "x", "a: ["), layout, first_rev=1).poll(0)


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0\n", (0,)),
        ("0-3", (0, 1, 2, 3)),
        ("0-7,9,11,13,15\n", (0, 1, 2, 3, 4, 5, 6, 7, 9, 11, 13, 15)),
        ("0,2,4,6,8,10,12,14,16-31", (0, 2, 4, 6, 8, 10, 12, 14, *range(16, 32))),
        ("\n", ()),
    ],
)
def test_cpu_lists(text: str, cpus: tuple[int, ...]) -> None:
    assert parse_cpu_list(text) == cpus


def test_a_machine_that_says_nothing_is_an_error(tmp_path: Path, layout: Layout) -> None:
    with pytest.raises(NodeFactsError, match="cannot read"):
        node_facts("n", Layout(str(tmp_path), layout.controllers, None), None)


def test_a_cpu_that_goes_offline_lowers_the_capacity(tmp_path: Path) -> None:
    root = tmp_path / "k"
    shutil.copytree(KERNELS / "v2-ubuntu", root)
    source = from_file(write(tmp_path / "i", POD), detect(str(root)), first_rev=1)
    assert source.poll(0).record.cpu_capacity_milli == 24_000
    (root / "sys/devices/system/cpu/online").write_text("0,2\n")
    later = source.poll(10_000_000).record
    assert (later.cpu_capacity_milli, later.pods_rev) == (2000, 2)
    (root / "proc/meminfo").unlink()
    assert source.poll(20_000_000).record == later


def test_unreadable_file_keeps_the_last_good_one(tmp_path: Path, layout: Layout) -> None:
    path = tmp_path / "inventory.yaml"
    source = from_file(write(path, POD), layout, first_rev=1)
    first = source.poll(0)
    path.unlink()
    path.mkdir()
    assert source.poll(1) is first
    assert file_of(source).error


def test_a_file_that_is_no_plain_file_or_far_too_large(tmp_path: Path) -> None:
    path = tmp_path / "i.yaml"
    os.mkfifo(path)
    with pytest.raises(InventoryError, match="no plain file"):
        load(str(path))
    path.unlink()
    with path.open("wb") as file:
        file.truncate(FILE_BYTES + 1)
    with pytest.raises(InventoryError, match="larger than"):
        load(str(path))


def test_annotations_of_the_file_are_read_as_the_cluster_s_are(
    tmp_path: Path, layout: Layout
) -> None:
    cpu = '{"kubernetes.io/batch-cpu": 7}'
    given = '{"allocations": [{"priority": "koord-batch", "resources": ' + cpu + "}]}"
    path = tmp_path / "i.yaml"
    note = "node.koordinator.sh/thirdPartyAllocations"
    path.write_text(f"node:\n  annotations:\n    {note}: '{given}'\n")
    record = from_file(str(path), layout).poll(0).record
    assert (record.third_party_cpu_milli, record.annotations) == (7, {})
    path.write_text(path.read_text() + "  third_party_cpu_milli: 9\n")
    assert from_file(str(path), layout).poll(0).record.third_party_cpu_milli == 9


def test_the_ratio_of_this_model(tmp_path: Path) -> None:
    root = tmp_path / "k"
    shutil.copytree(KERNELS / "v2-ubuntu", root)
    (root / "proc/cpuinfo").write_text("model name : Old\n")
    path = tmp_path / "i.yaml"
    path.write_text(
        "node: {cpu_ratios: [{model: Old, base: 1000, turbo: 1100}, {model: '*', base: 2000}]}"
    )
    assert from_file(str(path), detect(str(root))).poll(0).record.cpu_ratio_permille == 1000
    (root / "proc/cpuinfo").write_text("model name : New\n")
    assert from_file(str(path), detect(str(root))).poll(0).record.cpu_ratio_permille == 2000


def test_cpus_that_come_and_go_are_noticed_within_a_second(tmp_path: Path) -> None:
    root = tmp_path / "k"
    shutil.copytree(KERNELS / "v2-ubuntu", root)
    facts = NodeFacts("n", detect(str(root)))
    first = facts.look(0, None)
    online = root / "sys/devices/system/cpu/online"
    online.write_text("0-3\n")
    assert facts.look(HOTPLUG_US - 1, None) is first
    second = facts.look(HOTPLUG_US, None)
    assert (second.cpu_capacity_milli, facts.changes) == (4000, 1)
    online.write_text("\n")
    assert facts.look(2 * HOTPLUG_US, None) is second
    assert "no online CPU" in facts.error
    online.write_text("0-7\n")
    assert facts.look(3 * HOTPLUG_US, None).cpu_capacity_milli == 8000
    assert (facts.changes, facts.error) == (2, "")
    assert facts.look(3 * HOTPLUG_US + 1, "kubepods/besteffort") is not first


def test_a_pod_that_says_no_class_is_online(tmp_path: Path) -> None:
    path = write(tmp_path / "i.yaml", POD + "    priority_class: batch")
    assert load(path)[1][0].fact.qos == "LS"
