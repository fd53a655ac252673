"""What systems say of themselves, read: pods, the ResourceManager's answers, other allocators."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from lightkube.resources.core_v1 import Pod

from agents.inventory import LARGEST
from scheduler_bridge.ledger import third_party, yarn
from scheduler_bridge.ledger.amounts import NOTHING
from scheduler_bridge.ledger.book import Held
from scheduler_bridge.ledger.bound_pods import borrowing, entry, held_by_node, waiting
from scheduler_bridge.ledger.systems import Steady
from scheduler_bridge.ledger.yarn import Answer, NodeManager, YarnNode, YarnView
from scheduler_bridge.reconcile import Amount
from schemas import codec

NAMES = ("b/cpu", "b/memory", "m/cpu", "m/memory")
MIB = 1 << 20


def pod(asks: dict[str, str] | None = None, **more: Any) -> Any:
    spec = {"containers": [{"name": "c", "resources": {"requests": asks or {}}}], **more}
    meta = {"name": "p", **({"deletionTimestamp": spec.pop("leaves")} if "leaves" in spec else {})}
    status = {"phase": spec.pop("phase", "Running")}
    return Pod.from_dict({"metadata": meta, "spec": spec, "status": status})


def test_a_pod_holds_what_it_requests_of_what_is_lent() -> None:
    asks = {"b/cpu": "1k", "b/memory": "1Mi", "cpu": "3"}
    bound = borrowing(pod(asks, nodeName="n"), NAMES)
    leaves = borrowing(pod({"m/cpu": "500"}, nodeName="n", leaves="2026-01-01T00:00:00Z"), NAMES)
    waits = borrowing(pod(asks), NAMES)
    assert bound is not None
    assert leaves is not None
    assert waits is not None
    assert held_by_node([bound, leaves, waits]) == {
        "n": Held(Amount(1000, MIB, 500, 0), Amount(0, 0, 500, 0))
    }
    assert waiting([bound, leaves, waits]) == Amount(1000, MIB)


@pytest.mark.parametrize(
    "other", [pod({"cpu": "1"}), pod({"b/cpu": "1"}, phase="Succeeded"), pod(phase="Failed")]
)
def test_others_hold_nothing(other: Any) -> None:
    assert borrowing(other, NAMES) is None


def test_a_limit_is_a_request_init_containers_and_overhead_count() -> None:
    init = {"name": "i", "resources": {"limits": {"b/cpu": "5000"}}}
    side = {
        **init,
        "name": "s",
        "restartPolicy": "Always",
        "resources": {"limits": {"b/cpu": "1k"}},
    }
    found = borrowing(
        pod({"b/cpu": "1000"}, initContainers=[side, init], overhead={"b/cpu": "10"}), NAMES
    )
    assert found is not None
    assert found.amount.cpu_milli == 6010


def line(**changes: Any) -> dict[str, Any]:
    return {
        "id": "n1.example:8041", "nodeHostName": "n1.example", "state": "RUNNING",
        "numContainers": 1, "usedMemoryMB": 512, "availMemoryMB": 1536,
        "usedVirtualCores": 3, "availableVirtualCores": -1, "resourceUtilization": {}, **changes,
    }  # fmt: skip


def test_a_node_manager_shows_used_and_available_together() -> None:
    (found,) = yarn.read_nodes({"nodes": {"node": [line()]}})
    assert (found.shows, found.held) == (Amount(2000, 2048 * MIB), Amount(3000, 512 * MIB))
    assert yarn.read_nodes({"nodes": None}) == yarn.read_nodes({}) == ()


def test_pods_that_ask_for_more_than_a_record_can_say_hold_all_that_it_can() -> None:
    most = str(2**63 - 1)  # what the API server makes of 8Ei
    pods = [borrowing(pod({"b/cpu": most, "b/memory": "1"}, nodeName="n"), NAMES) for _ in "ab"]
    held = held_by_node([each for each in pods if each is not None])["n"]
    assert held.amount == Amount(LARGEST, 2)
    assert codec.encode(entry("n", "kubernetes", held))


@pytest.mark.parametrize(
    "figures",
    [{"usedVirtualCores": 10**18}, {"usedVirtualCores": -5}, {"availMemoryMB": -(10**12)}],
)
def test_a_line_that_cannot_be_changes_nothing_of_what_is_held(figures: dict[str, int]) -> None:
    view = YarnView()
    asked = Answer(1, yarn.read_nodes({"nodes": {"node": [line()]}}), 0)
    view.take(asked, {"n1"}, 0)
    before = view.nodes["n1"]
    odd = yarn.read_nodes(
        {"nodes": {"node": [line(**figures), line(nodeHostName="n2", id="n2:1")]}}
    )
    view.take(Answer(1, odd, 0), {"n1", "n2"}, 1)
    assert view.nodes["n1"] == YarnNode("", NOTHING, before.held)
    assert view.nodes["n2"].held == before.held, "its neighbours are believed"
    assert next(iter(figures)) in view.odd["n1.example:8041"]


@pytest.mark.parametrize(
    "said", [[], {"nodes": {"node": [{}]}}, {"nodes": {"node": [line(usedMemoryMB="much")]}}]
)
def test_an_answer_of_something_else_is_refused(said: Any) -> None:
    with pytest.raises(ValueError, match="ResourceManager"):
        yarn.read_nodes(said)


def test_one_that_stands_by_is_refused() -> None:
    assert yarn.read_started_ms({"clusterInfo": {"startedOn": 5}}) == 5
    with pytest.raises(ValueError, match="STANDBY"):
        yarn.read_started_ms({"clusterInfo": {"startedOn": 5, "haState": "STANDBY"}})


def manager(host: str = "n1", state: str = "RUNNING", cores: int = 2) -> NodeManager:
    return NodeManager(f"{host}:8041", host, state, Amount(4000, MIB), Amount(cores * 1000, 0), 1)


def seen(view: YarnView, at_ms: int, *nodes: NodeManager, started_ms: int = 1) -> YarnNode | None:
    view.take(Answer(started_ms, nodes, 0), {"n1", "n2"}, at_ms)
    return view.nodes.get("n1")


def test_a_lost_node_holds_nothing_and_shows_nothing() -> None:
    view = YarnView()
    assert seen(view, 0, manager()) == YarnNode("n1:8041", Amount(4000, MIB), Amount(2000, 0))
    assert seen(view, 1, manager(state="LOST")) == YarnNode("", NOTHING, NOTHING)
    lost_and_back = (manager(state="LOST"), manager(cores=1))
    back = seen(view, 2, *lost_and_back)
    assert back is not None
    assert back.held.cpu_milli == 1000


def test_a_new_run_is_not_believed_when_it_knows_less() -> None:
    view = YarnView(learn_ms=1_000)
    seen(view, 0, manager())
    gone = seen(view, 10, started_ms=2)
    assert gone == YarnNode("", NOTHING, Amount(2000, 0))
    again = seen(view, 20, manager(cores=0), started_ms=2)
    assert again is not None
    assert again.held.cpu_milli == 2000
    more = seen(view, 30, manager(cores=3), started_ms=2)
    assert more is not None
    assert more.held.cpu_milli == 3000
    later = seen(view, 1_010, manager(cores=0), started_ms=2)
    assert later is not None
    assert later.held == NOTHING


def test_a_node_that_is_in_no_list_is_believed_to_run_for_a_while() -> None:
    view = YarnView(learn_ms=1_000)
    seen(view, 0, manager())
    assert seen(view, 10) == YarnNode("", NOTHING, Amount(2000, 0))
    assert seen(view, 1_009) is not None
    assert seen(view, 1_010) is None


def test_hosts_are_matched_and_strangers_are_named() -> None:
    view = YarnView()
    seen(view, 0, manager("n2.example.org"), manager("other"))
    assert set(view.nodes) == {"n2"}
    assert view.unknown == {"other:8041"}


def test_an_update_has_whole_cores_and_mib_and_kills_nothing() -> None:
    said = yarn.update_of(Amount(3999, 3 * MIB - 1))
    assert said == {"resource": {"memory": 2, "vCores": 3}, "overCommitTimeout": -1}


def test_a_fall_counts_once_it_is_old_enough_and_a_rise_at_once() -> None:
    steady = Steady(1_000)
    assert not steady.settled("n", Amount(5, 5), 0)
    assert steady.settled("n", Amount(5, 5), 1_000)
    assert not steady.settled("n", Amount(3, 5), 1_100)
    assert not steady.settled("n", Amount(3, 5), 2_099)
    assert steady.settled("n", Amount(3, 5), 2_100)
    assert steady.settled("n", Amount(9, 9), 2_200)
    assert Steady(0).settled("n", Amount(1, 1), 0)


ALLOCATIONS = orjson.dumps(
    {
        "allocations": [
            {"name": "hadoop-yarn", "priority": "koord-batch",
             "resources": {"b/cpu": "10000", "b/memory": "10Gi"}},
            {"name": "hadoop-yarn", "priority": "koord-batch", "resources": {"b/cpu": 500}},
            {"name": "spark", "priority": "koord-mid", "resources": {"m/cpu": "7"}},
        ]
    }
).decode()  # fmt: skip


def test_what_other_allocators_say_of_batch_counts_summed_by_name() -> None:
    found = third_party.of_others(ALLOCATIONS, {"kubernetes"}, "b/cpu", "b/memory")
    assert found == {"hadoop-yarn": Amount(10_500, 10 << 30)}
    assert third_party.of_others(ALLOCATIONS, {"hadoop-yarn"}, "b/cpu", "b/memory") == {}
    assert third_party.of_others("", (), "b/cpu", "b/memory") == {}


@pytest.mark.parametrize(
    "said",
    [
        "{",
        '{"allocations": 3}',
        '{"allocations": [{"priority": "koord-batch"}]}',
        '{"allocations": [{"name": "a/b", "priority": "koord-batch"}]}',
        '{"allocations": [{"name": "a", "priority": "koord-batch", "resources": {"b/cpu": "x"}}]}',
    ],
)
def test_what_cannot_be_read_is_refused(said: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        third_party.of_others(said, (), "b/cpu", "b/memory")


def test_a_line_that_nobody_can_read_is_written_over() -> None:
    said = third_party.with_ours("{", {"yarn": Amount(1, 2)}, "b/cpu", "b/memory")
    assert third_party.of_others(said, (), "b/cpu", "b/memory") == {"yarn": Amount(1, 2)}


def test_ours_is_written_by_name_and_the_others_stay() -> None:
    said = third_party.with_ours(ALLOCATIONS, {"hadoop-yarn": Amount(1, 2)}, "b/cpu", "b/memory")
    assert [one["name"] for one in orjson.loads(said)["allocations"]] == ["spark", "hadoop-yarn"]
    assert third_party.of_others(said, (), "b/cpu", "b/memory") == {"hadoop-yarn": Amount(1, 2)}
    again = third_party.with_ours(said, {"hadoop-yarn": Amount(1, 2)}, "b/cpu", "b/memory")
    assert again == said
    origin = orjson.loads(third_party.origin(Amount(7, 8), "b/cpu", "b/memory"))
    assert origin == {"resources": {"b/cpu": "7", "b/memory": "8"}}
