"""From the kubelet's socket to the census: real TLS, the real thread, the real groups of a tree."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest

from node_agent.cgroup.layout import detect
from node_agent.discovery import RESCAN_US, Discovery
from node_agent.kubelet import ask, watch
from node_agent.process import source_for
from node_agent.settings import Kubernetes, Settings
from tests.node_agent.kernels import KERNELS
from tests.node_agent.kubelet.pods import answer, container, pod
from tests.node_agent.kubelet.server import NAME, Kubelet, kubelet

UID = "11111111-2222-3333-4444-555555555555"
CONFIG = {"kubeletconfig": {"reservedSystemCPUs": "0-1", "cpuManagerPolicy": "static"}}
NODE = {
    "kind": "Node",
    "metadata": {
        "name": "node-1",
        "labels": {"pool": "a"},
        "annotations": {
            "node.koordinator.sh/thirdPartyAllocations": '{"allocations": [{"priority":'
            ' "koord-batch", "resources": {"kubernetes.io/batch-cpu": "3000"}}]}'
        },
    },
    "status": {"allocatable": {"cpu": "900m", "memory": "1Gi"}},
}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kubelet]:
    monkeypatch.setattr(watch, "LEAST_GAP_S", 0.0)
    with kubelet(tmp_path) as found:
        asked = container("app", {"cpu": "250m"})
        found.paths["/pods"] = answer(pod(UID, "web", asked, status={"qosClass": "Burstable"}))
        found.paths["/configz"] = orjson.dumps(CONFIG)
        found.paths["/api/v1/nodes/node-1"] = orjson.dumps(NODE)
        yield found


@pytest.fixture
def source(server: Kubelet, tmp_path: Path) -> Iterator[Discovery]:
    shutil.copytree(KERNELS / "v2-kind", tmp_path / "k")
    group = tmp_path / "k/sys/fs/cgroup/kubepods/burstable" / f"pod{UID}"
    group.mkdir(parents=True)
    access = server.access()
    said = Kubernetes(
        kubelet=access.url,
        api_server=access.url.replace("127.0.0.1", "localhost"),
        token=access.token_file,
        ca=access.ca_file,
        kubelet_name=NAME,
    )
    settings = Settings("node-1", "", "", tmp_path, kubernetes=said)
    found = source_for(settings, detect(str(tmp_path / "k")))
    found.start()
    yield found
    found.stop()
    for each in found.watches:
        each._thread.join(20)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def test_all_that_kubernetes_says_is_in_the_first_census(
    source: Discovery, server: Kubelet
) -> None:
    census = source.poll(0)
    found = next(each for each in census.pods() if each.fact.uid == UID)
    assert (found.fact.name, found.fact.cpu_request_milli) == ("web", 250)
    record = census.record
    assert record.reserved_cpus == "0-1"
    assert record.labels == {"pool": "a"}
    assert (record.cpu_allocatable_milli, record.third_party_cpu_milli) == (900, 3000)
    assert {path.partition("?")[0] for path, _ in server.asked} == set(server.paths)


def test_a_kubelet_that_goes_and_comes_back(source: Discovery, server: Kubelet) -> None:
    first = source.poll(0)
    watched = source.watches[0]
    server.status = 503
    watched.wake()
    until(lambda: watched.errors > 0)
    assert "503" in watched.error
    assert source.poll(RESCAN_US) is first
    server.status = 200
    server.paths["/pods"] = answer(pod(UID, "renamed", status={"qosClass": "Burstable"}))
    watched.wake()
    until(lambda: not watched.error)
    census = source.poll(2 * RESCAN_US)
    assert "renamed" in [each.name for each in census.record.pods]


def test_a_role_that_may_not_read_the_configuration_reads_the_pods(server: Kubelet) -> None:
    del server.paths["/configz"]
    question = ask.Kubelet(server.access())
    said = question()
    question.close()
    assert (len(said.pods.pods), said.reserved_cpus) == (1, "")


def test_the_service_account_is_used_where_nothing_else_was_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("token", "ca.crt"):
        (tmp_path / name).write_text("x")
    monkeypatch.setattr(ask, "SERVICE_ACCOUNT", str(tmp_path))
    url = "https://10.0.0.1:10250"
    found = ask.access(Kubernetes(kubelet=url), url, kubelet=True)
    assert (found.token_file, found.ca_file) == (f"{tmp_path}/token", f"{tmp_path}/ca.crt")
    found = ask.access(Kubernetes(cert="c", ca="mine"), url, kubelet=True)
    assert (found.token_file, found.cert_file, found.ca_file) == ("", "c", "mine")
    found = ask.access(Kubernetes(kubelet_insecure=True), url, kubelet=True)
    assert (found.insecure, found.ca_file) == (True, "")
    found = ask.access(Kubernetes(kubelet_insecure=True, kubelet_name="n"), url, kubelet=False)
    assert (found.insecure, found.server_name) == (False, ""), "the API server is always checked"
    assert ask.access(Kubernetes(), "http://127.0.0.1:10255", kubelet=True).token_file == ""
