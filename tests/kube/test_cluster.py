"""The cluster: serves who it should, survives its components, and says in the end why it cannot."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lightkube import ApiError, AsyncClient
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Node, ServiceAccount

from streams.dev_broker.process import free_port
from tests.kube import programs
from tests.kube.cluster import Cluster
from tests.kube.component import Component
from tests.kube.errors import KubeError
from tests.kube.programs import Programs
from tests.support import patient

DIES_WITHIN_S = 10.0


@pytest.fixture(scope="module")
def own(kube_programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster that these tests may harm."""
    with Cluster(tmp_path_factory.mktemp("own") / "cluster", kube_programs) as mine:
        yield mine


async def write(cluster: Cluster, name: str) -> None:
    client = cluster.client()
    try:
        await client.create(ConfigMap(metadata=ObjectMeta(name=name, namespace="default")))
    finally:
        await client.close()


async def names(cluster: Cluster) -> set[str]:
    client = cluster.client()
    try:
        return {
            str(found.metadata and found.metadata.name)
            async for found in client.list(ConfigMap, namespace="default")
        }
    finally:
        await client.close()


def is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"  # whoever adopted it may not reap at once


async def test_a_user_may_do_nothing_that_no_role_gives(cluster: Cluster) -> None:
    stranger = cluster.client("stranger", "nobodies")
    try:
        with pytest.raises(ApiError) as error:
            await stranger.get(Node, "any")
    finally:
        await stranger.close()
    assert error.value.status.code == 403
    assert 'User "stranger"' in str(error.value)


async def test_a_node_speaks_for_itself_only(cluster: Cluster, client: AsyncClient) -> None:
    node = cluster.client("system:node:n1", "system:nodes")
    try:
        await node.create(Node(metadata=ObjectMeta(name="n1")))
        with pytest.raises(ApiError) as error:
            await node.create(Node(metadata=ObjectMeta(name="n2")))
    finally:
        await node.close()
        await client.delete(Node, "n1")
    assert error.value.status.code == 403


async def test_a_namespace_has_its_account(client: AsyncClient, namespace: str) -> None:
    account = await client.get(ServiceAccount, "default", namespace=namespace)
    assert account.metadata is not None


async def test_a_restart_keeps_address_and_data(own: Cluster) -> None:
    await write(own, "kept")
    before, pid = own.url, own.api_server.pid
    own.api_server.restart()
    assert own.url == before
    assert own.api_server.pid != pid
    assert "kept" in await names(own)


async def test_a_killed_etcd_keeps_what_was_written(own: Cluster) -> None:
    await write(own, "survives")
    own.etcd.kill()
    assert not own.etcd.alive
    own.etcd.start()
    own.api_server.restart()
    assert "survives" in await names(own)


async def test_the_past_can_be_made_to_expire(own: Cluster) -> None:
    client = own.client()
    try:
        made = await client.create(
            ConfigMap(metadata=ObjectMeta(name="early", namespace="default"))
        )
        assert made.metadata is not None
        await write(own, "late")
        own.compact()
        own.api_server.restart()
        watch = client.watch(
            ConfigMap, namespace="default", resource_version=made.metadata.resourceVersion
        )
        with pytest.raises(ApiError) as error:
            async for _ in watch:
                pass
    finally:
        await client.close()
    assert error.value.status.code == 410


def test_the_scheduler_takes_other_settings(own: Cluster) -> None:
    own.schedule(percentageOfNodesToScore=50)
    assert "50" in (own.folder / "scheduler.yaml").read_text()
    with pytest.raises(KubeError) as error:
        own.schedule(percentageOfNodesToScore=500)
    assert "percentageOfNodesToScore" in str(error.value), "the end of its log is shown"
    assert not own.scheduler.alive
    own.schedule()


def test_a_component_cannot_run_twice(own: Cluster) -> None:
    with pytest.raises(KubeError, match="runs already"):
        own.etcd.start()


def test_a_program_that_ends_at_once_is_told_with_its_log(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as lock:
        command = ["/bin/sh", "-c", "echo this is why; exit 3"]
        failing = Component(
            "thing", lambda: command, lambda: False, tmp_path / "log", lock.fileno()
        )
        with pytest.raises(KubeError, match=r"exit code 3.*\n +this is why"):
            failing.start()
    assert not failing.alive


def test_a_port_that_someone_took_is_given_up(
    kube_programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        first = iter([stranger.getsockname()[1]])
        monkeypatch.setattr(
            "tests.kube.cluster.free_port", lambda host: next(first, None) or free_port(host)
        )
        with Cluster(tmp_path / "cluster", kube_programs) as started:
            assert all(component.alive for component in started.components)
            said = started.etcd.log.read_text()
    assert "address already in use" in said


def test_a_folder_serves_one_cluster(own: Cluster, kube_programs: Programs) -> None:
    with pytest.raises(KubeError, match="another cluster uses"):
        Cluster(own.folder, kube_programs)


def test_nothing_outlives_the_one_who_started_it(kube_programs: Programs, tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path\n"
        "from tests.kube import programs; from tests.kube.cluster import Cluster\n"
        f"cluster = Cluster(Path({str(tmp_path / 'cluster')!r}), programs.find())\n"
        "cluster.start(); print(*(one.pid for one in cluster.components), flush=True)\n"
        "time.sleep(600)\n"
    )
    root = Path(programs.__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=root, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        parent.kill()
    assert len(pids) == 4
    deadline = time.monotonic() + patient(DIES_WITHIN_S)
    while not all(is_gone(pid) for pid in pids):
        assert time.monotonic() < deadline, "a program outlived the process that started it"
        time.sleep(0.02)
