from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from node_agent import discovery
from node_agent.cgroup.layout import Layout, detect
from node_agent.cgroup.names import container_id, pod_uid
from node_agent.cgroup.paths import GroupPathError
from node_agent.discovery import Discovery
from node_agent.inventory import InventoryError
from node_agent.inventory_node import REFRESH_US
from tests.node_agent.kernels import KERNELS

ID = "4fd1c0ffee00112233445566778899aabbccddeeff00112233445566778899aa"
UID = "3f1c0a4e-6f0e-4f3b-8f63-5a5a4f5a9c01"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """A machine that says what it has, with no group yet."""
    shutil.copytree(KERNELS / "v2-kind", tmp_path / "k")
    shutil.rmtree(tmp_path / "k/sys/fs/cgroup/system.slice")
    return detect(str(tmp_path / "k"))


def make(layout: Layout, *groups: str) -> None:
    for group in groups:
        (Path(layout.anchor) / group).mkdir(parents=True)


@pytest.mark.parametrize(
    "name", [f"cri-containerd-{ID}.scope", f"crio-{ID}.scope", f"docker-{ID}.scope", ID]
)
def test_every_runtime_s_container_name(name: str) -> None:
    assert container_id(name) == ID


@pytest.mark.parametrize("name", [f"crio-conmon-{ID}.scope", "init.scope", "web", "docker-x.scope"])
def test_what_is_no_container(name: str) -> None:
    assert container_id(name) is None


@pytest.mark.parametrize(
    ("name", "uid"),
    [
        (f"pod{UID}", UID),
        (f"kubepods-pod{UID.replace('-', '_')}.slice", UID),
        (f"kubelet-kubepods-besteffort-pod{UID.replace('-', '_')}.slice", UID),
        ("pod8c1d2e3f405162738495a6b7c8d9e0f1", "8c1d2e3f405162738495a6b7c8d9e0f1"),
        ("kubepods-besteffort.slice", None),
        ("besteffort", None),
        ("podman", None),
    ],
)
def test_pod_names_of_both_drivers(name: str, uid: str | None) -> None:
    assert pod_uid(name) == uid


@pytest.mark.parametrize(
    "base", ["kubepods", "kubelet/kubepods", f"system.slice/docker-{ID}.scope/kubelet/kubepods"]
)
def test_a_nested_tree_is_found_and_gives_the_best_effort_root(layout: Layout, base: str) -> None:
    make(layout, f"{base}/besteffort/pod{UID}/{ID}", f"{base}/pod{UID[:-1]}2", f"{base}/burstable")
    census = Discovery("n", layout, first_rev=1).poll(0)
    assert census.be_root == f"{base}/besteffort"
    assert [(p.uid, p.qos) for p in census.record.pods] == [(UID, "BE"), (UID[:-1] + "2", "LSR")]


def test_patterns_leave_out_the_best_effort_root_itself(layout: Layout) -> None:
    make(layout, "demo/online/web", "demo/besteffort/job", "demo/besteffort/deep/er")
    source = Discovery(
        "n", layout, first_rev=1, roots=("demo/*", "demo/*/*"), be_root="demo/besteffort"
    )
    census = source.poll(0)
    assert [(pod.uid, pod.name, pod.qos) for pod in census.record.pods] == [
        ("demo/besteffort/deep", "deep", "BE"),
        ("demo/besteffort/job", "job", "BE"),
        ("demo/online/web", "web", "LS"),
    ]
    assert source.refused == {"demo/online": "contains groups that are pods themselves"}


def test_a_pod_in_the_wrong_place_is_refused_not_taken(layout: Layout) -> None:
    make(layout, f"kubepods/besteffort/pod{UID}", "demo/besteffort/job")
    source = Discovery("n", layout, first_rev=1, roots=("demo/*/*",), be_root="demo/besteffort")
    census = source.poll(0)
    assert [pod.uid for pod in census.record.pods] == ["demo/besteffort/job"]
    assert "not below 'demo/besteffort'" in source.refused[f"kubepods/besteffort/pod{UID}"]


def test_a_revision_for_each_change_and_none_without(layout: Layout) -> None:
    make(layout, "demo/a")
    source = Discovery("n", layout, first_rev=40, roots=("demo/*",), kubernetes=False)
    first = source.poll(0)
    assert (first.record.pods_rev, first.groups) == (40, ("demo/a",))
    make(layout, "demo/b")
    assert source.poll(discovery.RESCAN_US - 1) is first, "scanned too often"
    second = source.poll(discovery.RESCAN_US)
    assert (second.record.pods_rev, second.groups) == (41, ("demo/a", "demo/b"))
    (Path(layout.anchor) / "demo/a").rmdir()
    third = source.poll(2 * discovery.RESCAN_US)
    assert (third.record.pods_rev, third.groups) == (42, ("demo/b",))
    assert source.poll(3 * discovery.RESCAN_US) is third


def test_one_uid_is_taken_once(layout: Layout) -> None:
    make(layout, f"kubepods/pod{UID}", f"kubepods/burstable/pod{UID}")
    source = Discovery("n", layout, first_rev=1)
    assert len(source.poll(0).record.pods) == 1
    assert "has the uid of" in source.refused[f"kubepods/pod{UID}"]


@pytest.mark.parametrize("root", ["", "/", "demo/../*"])
def test_unsafe_patterns_are_refused(layout: Layout, root: str) -> None:
    with pytest.raises(GroupPathError):
        Discovery("n", layout, first_rev=1, roots=(root,))


def test_symlinks_are_not_followed(layout: Layout) -> None:
    make(layout, "demo/a")
    (Path(layout.anchor) / "demo/link").symlink_to("/")
    source = Discovery("n", layout, first_rev=1, roots=("demo/*",), kubernetes=False)
    assert source.poll(0).groups == ("demo/a",)


def test_a_scan_that_fails_keeps_the_last_state(layout: Layout) -> None:
    make(layout, "demo/a")
    source = Discovery("n", layout, first_rev=1, roots=("demo/*",))
    first = source.poll(0)
    online = Path(layout.root) / "sys/devices/system/cpu/online"
    text = online.read_text()
    online.write_text("")
    assert source.poll(REFRESH_US) is first
    assert "no online CPU" in source.error
    online.write_text(text)
    make(layout, "demo/b")
    assert len(source.poll(2 * REFRESH_US).groups) == 2
    assert source.error == ""
    online.unlink()
    with pytest.raises(InventoryError, match="cannot discover pods"):
        Discovery("n", layout, first_rev=1).poll(0)


def test_a_pattern_without_a_wildcard_names_one_group(layout: Layout) -> None:
    make(layout, "demo/a", "demo/b")
    source = Discovery("n", layout, first_rev=1, roots=("demo/a", "gone/x"), kubernetes=False)
    assert source.poll(0).groups == ("demo/a",)
