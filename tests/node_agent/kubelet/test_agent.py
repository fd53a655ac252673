"""The agent as an operator starts it, beside a kubelet: real TLS, groups, broker and process."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas import codec
from schemas.records import Inventory
from streams.dev_broker import DevBroker
from tests.node_agent.kubelet.pods import ID, answer, container, pod
from tests.node_agent.kubelet.server import NAME, kubelet
from tests.node_agent.realgroups import RealGroups, real_groups
from tests.node_agent.test_loop import NODE, POLICY, Centre
from tests.node_agent.test_outbox import topics, until

WEB, JOB = (f"{digit * 8}-2222-3333-4444-555555555555" for digit in "ab")
BE = {"koordinator.sh/qosClass": "BE"}
pytestmark = pytest.mark.kernel


@pytest.fixture
def groups() -> Iterator[RealGroups]:
    with real_groups("kubelet") as made:
        yield made


async def test_pods_have_names_from_the_first_record_on(
    broker: DevBroker, prefix: str, groups: RealGroups, tmp_path: Path
) -> None:
    groups.make(f"kubepods/burstable/pod{WEB}/{ID}")
    groups.make(f"kubepods/besteffort/pod{JOB}")
    asked = {"kubernetes.io/batch-cpu": "700"}
    web = pod(
        WEB, "web-0", container("app", {"cpu": "250m"}), owner=("StatefulSet", "web"),
        ids={"app": f"containerd://{ID}"}, status={"qosClass": "Burstable"},
    )  # fmt: skip
    job = pod(
        JOB, "job-0", container("app", asked, asked), labels=BE, status={"qosClass": "BestEffort"}
    )
    centre = Centre(broker, prefix)
    await topics(broker, prefix, POLICY)
    with kubelet(tmp_path) as server:
        server.paths["/pods"] = answer(web, job)
        access = server.access()
        options = {
            "--node": NODE,
            "--brokers": broker.bootstrap,
            "--prefix": prefix,
            "--period": "200ms",
            "--state-dir": str(tmp_path / "state"),
            "--be-root": f"{groups.top}/kubepods/besteffort",
            "--kubelet": access.url,
            "--kubelet-name": NAME,
            "--kube-token": access.token_file,
            "--kube-ca": access.ca_file,
        }
        words = [word for option in options.items() for word in option]
        command = [sys.executable, "-m", "node_agent", "run", *words]
        with (tmp_path / "agent.log").open("wb") as log:
            agent = await asyncio.create_subprocess_exec(*command, stderr=log)
        try:
            async with centre.at_work():
                await until(lambda: len(centre.samples) > 2, 60, "samples")
        finally:
            agent.terminate()
            code = await asyncio.wait_for(agent.wait(), 20)
    assert code == 0, (tmp_path / "agent.log").read_text()
    records = [
        codec.decode(Inventory, heard.value)
        for topic, heard in centre.raw
        if topic == "inventory" and heard.value is not None
    ]
    mine = {each.uid: each for each in records[0].pods if each.uid in (WEB, JOB)}
    assert (mine[WEB].name, mine[WEB].workload) == ("web-0", "shop/web")
    assert (mine[WEB].qos, mine[WEB].cpu_request_milli) == ("LS", 250)
    assert (mine[JOB].qos, mine[JOB].cpu_request_milli, mine[JOB].evictable) == ("BE", 700, True)
    assert centre.samples[-1].pods == len(records[-1].pods)
