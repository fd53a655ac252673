"""One revision a state of the record; containers are the machine's own and move no revision."""

from __future__ import annotations

from dataclasses import replace

from node_agent.containers import Amounts, Container
from node_agent.inventory import Pod, Revisions
from schemas.records import Inventory, PodFact

FACTS = Inventory(node="n", pods_rev=0, cpu_capacity_milli=1000, memory_capacity_bytes=1)
WEB = Container("c1", "g/web/c1", "web", "app", requests=Amounts(cpu_milli=500))


def test_a_restarted_container_is_another_census_of_the_same_record() -> None:
    revisions = Revisions(1)
    pod = Pod(PodFact(uid="web", name="web"), "g/web", (WEB,))
    first = revisions.census(FACTS, [pod], None)
    assert revisions.census(FACTS, [pod], None) is first
    assert first.pods() == (pod,)
    later = Pod(pod.fact, pod.group, (replace(WEB, id="c2", group="g/web/c2"),))
    second = revisions.census(FACTS, [later], None)
    assert second.record is first.record
    assert second.pods() == (later,)
    assert revisions.census(FACTS, [later], None) is second


def test_the_containers_follow_the_order_of_the_pods() -> None:
    pods = [Pod(PodFact(uid=uid, name=uid), f"g/{uid}") for uid in ("b", "a")]
    pods[0] = replace(pods[0], containers=(WEB,))
    census = Revisions(1).census(FACTS, pods, None)
    assert [pod.fact.uid for pod in census.pods()] == ["a", "b"]
    assert census.containers == ((), (WEB,))
