"""A pod of the kubelet's list as facts: classes, amounts, names, and what tenants write badly."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node_agent.containers import Amounts
from node_agent.kubelet import facts, wire
from node_agent.kubelet.facts import KubePod
from schemas.packed import MAX_PODS
from schemas.records import BurstWish
from tests.node_agent.kubelet.pods import ID, answer, container, pod

GI = 1 << 30
QOS = "koordinator.sh/qosClass"
BATCH = {"kubernetes.io/batch-cpu": "1500", "kubernetes.io/batch-memory": "2Gi"}


def read(*pods: Any) -> tuple[KubePod, ...]:
    return facts.read(answer(*pods)).pods


def one(*arguments: Any, **words: Any) -> KubePod:
    (found,) = read(pod("aaaaaaaa-1111-2222-3333-444444444444", "web-1", *arguments, **words))
    return found


def test_a_prod_pod_in_full() -> None:
    (found,) = read(
        pod(
            "3f1c0a4e-6f0e-4f3b-8f63-5a5a4f5a9c01",
            "web-7d9c6bfb4f-x2k5p",
            container("app", {"cpu": "500m", "memory": "1Gi"}, {"cpu": 1, "memory": "2Gi"}),
            container("log", {"cpu": "50m"}, {"cpu": "100m", "memory": "64Mi"}),
            labels={"pod-template-hash": "7d9c6bfb4f", "koordinator.sh/qosClass": "LS"},
            annotations={"koordinator.sh/eviction-priority": "-3"},
            owner=("ReplicaSet", "web-7d9c6bfb4f"),
            ids={"app": f"containerd://{ID}", "log": "cri-o://" + "b" * 64},
            spec={"priority": 9100},
            status={"qosClass": "Burstable"},
        )
    )
    fact = found.fact
    assert (fact.uid, fact.name) == ("3f1c0a4e-6f0e-4f3b-8f63-5a5a4f5a9c01", "web-7d9c6bfb4f-x2k5p")
    assert (fact.namespace, fact.workload) == ("shop", "shop/web")
    assert (fact.qos, fact.priority_class, fact.priority) == ("LS", "prod", 9100)
    assert (fact.cpu_request_milli, fact.memory_request_bytes) == (550, GI + (64 << 20))
    assert (fact.cpu_limit_milli, fact.memory_limit_bytes) == (1100, 2 * GI + (64 << 20))
    assert (fact.eviction_priority, fact.terminating, fact.evictable) == (-3, False, True)
    assert (found.kubernetes_qos, found.over) == ("Burstable", False)
    app, log = found.containers
    assert (app.id, app.name, app.kind, app.group) == (ID, "app", "app", "")
    assert app.requests == Amounts(cpu_milli=500, memory_bytes=GI)
    assert (log.id, log.limits.memory_bytes, log.requests.memory_bytes) == ("b" * 64, 64 << 20, -1)


def test_a_batch_pod_asks_in_the_resources_of_its_class() -> None:
    found = one(
        container("job", BATCH, BATCH),
        labels={"koordinator.sh/qosClass": "BE", "koordinator.sh/priority-class": "batch"},
        status={"qosClass": "BestEffort"},
    )
    assert (found.fact.qos, found.fact.priority_class, found.fact.priority) == ("BE", "batch", 5500)
    assert (found.fact.cpu_request_milli, found.fact.memory_limit_bytes) == (1500, 2 * GI)
    assert found.containers[0].limits == Amounts(batch_cpu_milli=1500, batch_memory_bytes=2 * GI)


def test_a_default_of_the_namespace_does_not_hide_the_batch_amounts() -> None:
    found = one(
        container("job", {**BATCH, "cpu": "1"}, {**BATCH, "cpu": "1"}),
        labels={"koordinator.sh/qosClass": "BE"},
        spec={"priority": 5500},
    )
    assert (found.fact.cpu_request_milli, found.fact.cpu_limit_milli) == (1500, 1500)


def test_amounts_that_admission_noted_count_where_the_container_says_none() -> None:
    note = {"containers": {"job": {"limits": BATCH, "requests": {"kubernetes.io/batch-cpu": "7"}}}}
    said = {"node.koordinator.sh/extended-resource-spec": orjson.dumps(note).decode()}
    found = one(
        container("job", {"kubernetes.io/batch-cpu": "9"}),
        labels={"koordinator.sh/qosClass": "BE"},
        annotations=said,
    )
    assert found.containers[0].requests.batch_cpu_milli == 9
    assert found.containers[0].limits.batch_memory_bytes == 2 * GI


def test_a_mid_pod() -> None:
    asked = {"kubernetes.io/mid-cpu": "4000", "kubernetes.io/mid-memory": "4G"}
    found = one(container("a", asked), labels={"koordinator.sh/priority-class": "mid"})
    assert (found.fact.priority_class, found.fact.cpu_request_milli) == ("mid", 4000)
    assert (found.fact.memory_request_bytes, found.fact.memory_limit_bytes) == (4 * 10**9, -1)


@pytest.mark.parametrize(
    ("init", "milli"),
    [
        ((), 300),
        ((container("i", {"cpu": "2"}),), 2000),
        ((container("i", {"cpu": "200m"}),), 300),
        ((container("side", {"cpu": "500m"}, restart="Always"),), 800),
        ((container("s", {"cpu": "500m"}, restart="Always"), container("i", {"cpu": "1"})), 1500),
        ((container("i", {"cpu": "1"}), container("s", {"cpu": "500m"}, restart="Always")), 1000),
    ],
)
def test_init_containers_and_sidecars(init: tuple[dict[str, Any], ...], milli: int) -> None:
    found = one(container("a", {"cpu": "300m"}), init=init)
    assert found.fact.cpu_request_milli == milli
    assert found.fact.cpu_limit_milli == -1


def test_overhead_and_amounts_of_the_whole_pod() -> None:
    full = container("a", {"cpu": "300m"}, {"cpu": "1"})
    found = one(full, spec={"overhead": {"cpu": "250m"}})
    assert (found.fact.cpu_request_milli, found.fact.cpu_limit_milli) == (550, 1250)
    whole = {"requests": {"cpu": "2"}, "limits": {"cpu": "3", "memory": "1Gi"}}
    found = one(full, spec={"resources": whole})
    assert (found.fact.cpu_request_milli, found.fact.cpu_limit_milli) == (2000, 3000)
    assert found.fact.memory_limit_bytes == GI


@pytest.mark.parametrize(
    ("containers", "qos"),
    [
        ([container()], "BestEffort"),
        ([container("a", {"kubernetes.io/batch-cpu": "1"})], "BestEffort"),
        ([container("a", {"cpu": "1"})], "Burstable"),
        ([container("a", None, {"cpu": "1", "memory": "1Gi"})], "Guaranteed"),
        ([container("a", {"cpu": "0.5"}, {"cpu": "1", "memory": "1Gi"})], "Burstable"),
        ([container("a", None, {"cpu": "1", "memory": "1Gi"}), container("b")], "Burstable"),
        ([container("a", None, {"cpu": "1"})], "Burstable"),
        ([container("a", {"cpu": "0"})], "BestEffort"),
    ],
)
def test_the_class_of_a_kubelet_that_has_not_said_it(containers: list[Any], qos: str) -> None:
    assert one(*containers).kubernetes_qos == qos


@pytest.mark.parametrize(
    ("qos", "effective", "priority_class"),
    [("Guaranteed", "LSR", "prod"), ("Burstable", "LS", "prod"), ("BestEffort", "BE", "batch")],
)
def test_a_pod_without_labels_goes_by_its_kubernetes_class(
    qos: str, effective: str, priority_class: str
) -> None:
    fact = one(status={"qosClass": qos}).fact
    assert (fact.qos, fact.priority_class) == (effective, priority_class)


@pytest.mark.parametrize(
    ("name", "owner", "labels", "workload"),
    [
        ("db-0", ("StatefulSet", "db"), {}, "shop/db"),
        ("run-28373120-abcde", ("Job", "run-28373120"), {}, "shop/run"),
        ("run-x7-abcde", ("Job", "run-x7"), {}, "shop/run-x7"),
        ("web-abc-x", ("ReplicaSet", "web-abc"), {"pod-template-hash": "abc"}, "shop/web"),
        ("web-abc-x", ("ReplicaSet", "web-abc"), {}, "shop/web-abc"),
        ("kube-proxy-node-1", ("Node", "node-1"), {}, "shop/kube-proxy"),
        ("alone", None, {}, "shop/alone"),
        ("bad", ("StatefulSet", "../../x"), {}, "shop/bad"),
    ],
)
def test_the_workload_is_the_same_on_every_node_and_after_a_rollout(
    name: str, owner: tuple[str, str] | None, labels: dict[str, str], workload: str
) -> None:
    (found,) = read(pod("a-1", name, owner=owner, labels=labels))
    assert found.fact.workload == workload


def test_pins_and_wishes_of_annotations() -> None:
    place = {"cpuset": "0-2,8", "numaNodeResources": [{"node": 1}, {"node": 0}]}
    burst = {"policy": "cpuBurstOnly", "cpuBurstPercent": 300, "cfsQuotaBurstPeriodSeconds": -1}
    found = one(
        annotations={
            facts.PLACE_ANNOTATION: orjson.dumps(place).decode(),
            facts.BURST_ANNOTATION: orjson.dumps(burst).decode(),
            "slackwater.io/evictable": "false",
            "slackwater.io/recoverable": "true",
        },
        labels={"koordinator.sh/eviction-enabled": "true"},
    ).fact
    assert (found.cpus, found.numa_nodes) == ((0, 1, 2, 8), (0, 1))
    assert found.cpu_burst == BurstWish("cpu_burst_only", 300, None, -1)
    assert (found.evictable, found.recoverable, found.opted_in) == (False, True, True)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"cpuset": "9-1"}', '{"cpuset": 3}', '{"policy": "x"}', "9" * 20_000,
     '{"cpuset": "0-99999999"}', "[" * 5000, "\ud800", '{"cpuBurstPercent": 1e400}',
     '{"cpuBurstPercent": 99999999999999999999}'],
)  # fmt: skip
def test_annotations_that_cannot_be_read_were_not_said(text: str) -> None:
    notes = dict.fromkeys(
        (facts.PLACE_ANNOTATION, facts.BURST_ANNOTATION,
         "node.koordinator.sh/extended-resource-spec"), text,
    )  # fmt: skip
    said = wire.Pod(
        wire.Metadata("u", "n", annotations=notes), wire.Spec([wire.ContainerSpec("a")])
    )
    found = facts.kube_pod(said)
    assert (found.fact.cpus, found.fact.numa_nodes) == ((), ())
    assert found.fact.cpu_burst in (None, BurstWish())


def test_static_pods_are_known_by_their_hash_and_never_evicted() -> None:
    digest = "8c1d2e3f405162738495a6b7c8d9e0f1"
    notes = {"kubernetes.io/config.hash": digest, "kubernetes.io/config.source": "file"}
    owner = ("Node", "node-1")
    static = pod(digest, "apiserver-node-1", annotations=notes, owner=owner)
    mirror = pod(
        "11111111-0000-0000-0000-000000000000",
        "apiserver-node-1",
        annotations={**notes, "kubernetes.io/config.mirror": digest},
        owner=owner,
    )
    (alone,) = read(mirror)
    assert alone.keys == ("11111111-0000-0000-0000-000000000000", digest)
    assert (alone.fact.evictable, alone.fact.workload) == (False, "shop/apiserver")
    (both,) = read(mirror, static)
    assert (both.fact.uid, both.keys) == (digest, (digest,))


def test_a_hash_that_somebody_else_claims_names_nobody() -> None:
    thief = {"kubernetes.io/config.hash": "aaaa", "kubernetes.io/config.source": "api"}
    victim, robber = read(pod("aaaa", "web"), pod("bbbb", "thief", annotations=thief))
    assert (victim.keys, robber.keys) == (("aaaa",), ("bbbb",))
    thief["kubernetes.io/config.hash"] = "cccc"
    first, second = read(
        pod("bbbb", "thief", annotations=thief), pod("dddd", "other", annotations=thief)
    )
    assert (first.keys, second.keys) == (("bbbb",), ("dddd",))


def test_the_end_of_pods() -> None:
    gone = one(meta={"deletionTimestamp": "2026-01-02T03:04:05Z"})
    assert gone.fact.terminating
    assert one(status={"phase": "Succeeded"}).over
    assert one(status={"phase": "Failed"}).over
    assert not one(status={"phase": "Pending"}).over


@pytest.mark.parametrize(
    "bad",
    [
        7,
        {},
        {"metadata": {"name": "x"}, "spec": {"containers": []}},
        pod("", "x"),
        pod("a/b", "x"),
        pod("a\nb", "x"),
        pod("..\\..", "x"),
        pod("u", "x" * 300),
        pod("u", "x", labels={"a": 1}),
        pod("u", "x", spec={"containers": "many"}),
        pod("u", "x", spec={"priority": "high"}),
    ],
)
def test_a_bad_pod_harms_no_other(bad: Any) -> None:
    found = facts.read(answer(pod("good-1", "a"), bad, pod("good-2", "b")))
    assert [each.fact.uid for each in found.pods] == ["good-1", "good-2"]
    assert found.left_out == 1


@pytest.mark.parametrize(
    "time", ["-6795364578.87", "0", 0, "0001-01-01T00:00:00Z", "2999-01-01T00:00:00Z", None, [1]]
)
def test_a_uid_counts_once_and_weird_start_times_do_not_matter(time: object) -> None:
    started = {"state": {"running": {"startedAt": time}}, "name": "app"}
    found = facts.read(
        answer(pod("u", "a", status={"containerStatuses": [started]}), pod("u", "b"))
    )
    assert [each.fact.name for each in found.pods] == ["a"]
    assert found.left_out == 1


def test_quantities_that_are_none_were_not_said() -> None:
    found = one(container("a", {"cpu": "many", "memory": "-5"}, {"cpu": "1Gi ", "memory": "lots"}))
    assert found.fact.cpu_request_milli == 0
    assert found.fact.memory_limit_bytes == -1


def test_a_limit_alone_is_the_request_too() -> None:
    found = one(container("a", None, {"cpu": "2"}), container("b", {"cpu": "1"}, {"cpu": "3"}))
    assert (found.fact.cpu_request_milli, found.fact.cpu_limit_milli) == (3000, 5000)


def test_cores_written_for_thousandths_are_doubted() -> None:
    few = {"kubernetes.io/batch-cpu": "8"}
    said = facts.read(answer(pod("u", "job", container("a", few, few), labels={QOS: "BE"})))
    assert said.doubts == (
        "shop/job says batch-cpu 8, which is 8 thousandths of a CPU; write 8000 for 8 CPUs",
    )
    assert said.pods[0].fact.cpu_request_milli == 8, "what was written is what holds"


def test_far_too_many_pods_and_containers() -> None:
    found = facts.read(answer(*(pod(f"u-{n}", "a") for n in range(MAX_PODS + 3))))
    assert (len(found.pods), found.left_out) == (MAX_PODS, 3)
    many = one(*(container(f"c{n}", {"cpu": "1m"}) for n in range(1000)))
    assert (len(many.containers), many.fact.cpu_request_milli) == (facts.CONTAINERS_MAX, 1000)


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        (b"", "not a list of pods"),
        (b"<html>", "not a list of pods"),
        (b"[]", "not a list of pods"),
        (b"{}", "instead of a PodList"),
        (b'{"kind": "PodList", "items": {}}', "not a list of pods"),
        (b'{"kind": "Status", "message": "etcdserver: timed out"}', "etcdserver: timed out"),
        (answer()[:-2], "not a list of pods"),
    ],
)
def test_what_is_no_list_of_pods_is_refused_whole(raw: bytes, word: str) -> None:
    with pytest.raises(wire.BadAnswer, match=word):
        facts.read(raw)


def test_an_empty_list_is_an_answer() -> None:
    assert facts.read(answer(items=None)).pods == ()


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.sampled_from(["metadata", "spec", "status"]), st.text(max_size=12), _JSON)
def test_whatever_a_tenant_writes_the_neighbour_stands(part: str, key: str, value: Any) -> None:
    try:
        bad = pod("bad", "x")
        bad[part][key] = value
        raw = answer(pod("good", "a"), bad)
    except (TypeError, orjson.JSONEncodeError):
        return
    assert "good" in [each.fact.uid for each in facts.read(raw).pods]
