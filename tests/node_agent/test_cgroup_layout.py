from __future__ import annotations

from pathlib import Path

import pytest

from node_agent.cgroup.files import FILES, UNIFIED
from node_agent.cgroup.layout import CONTROLLERS, LayoutError, detect
from node_agent.cgroup.paths import GroupPathError, normal_group, overlaps, strictly_inside
from tests.node_agent.kernels import KERNELS


def mountinfo(root: Path, text: str) -> str:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mountinfo").write_text(text)
    return str(root)


def test_version_belongs_to_the_controller_not_to_the_host() -> None:
    layout = detect(str(KERNELS / "hybrid-debian"))
    assert layout.kind == "hybrid"
    assert layout.controllers["cpu"].version == 1
    assert layout.controllers["memory"].version == 2
    assert layout.unified == str(KERNELS / "hybrid-debian/sys/fs/cgroup/unified")


@pytest.mark.parametrize(
    ("kernel", "name", "expected"),
    [
        ("v1-centos", "cpu_usage", (1, "sys/fs/cgroup/cpu,cpuacct/g/a/cpuacct.usage")),
        ("v1-centos", "psi_cpu", None),
        ("v1-centos", "io_bytes", (1, "sys/fs/cgroup/blkio/g/a/" + (FILES["io_bytes"].v1 or ""))),
        ("hybrid-debian", "memory_limit", (2, "sys/fs/cgroup/unified/g/a/memory.max")),
        ("hybrid-debian", "cpu_quota", (1, "sys/fs/cgroup/cpu,cpuacct/g/a/cpu.cfs_quota_us")),
        ("v2-ubuntu", "cpu_quota", (2, "sys/fs/cgroup/g/a/cpu.max")),
        ("v2-ubuntu", "cpu_period", None),
        ("v2-ubuntu", "kill", (2, "sys/fs/cgroup/g/a/cgroup.kill")),
    ],
)
def test_places(kernel: str, name: str, expected: tuple[int, str] | None) -> None:
    place = detect(str(KERNELS / kernel)).place(name, "/g/a/")
    if expected is None:
        assert place is None
    else:
        assert place is not None
        assert (place.version, place.path) == (expected[0], str(KERNELS / kernel / expected[1]))


def test_a_bind_mount_of_a_part_does_not_hide_the_whole_hierarchy(tmp_path: Path) -> None:
    root = mountinfo(
        tmp_path,
        "35 28 0:31 /docker/01 /part\\040of\\040it rw - cgroup cgroup rw,cpu,cpuacct\n"
        "33 28 0:31 / /sys/fs/cgroup/cpu rw shared:1 - cgroup cgroup rw,cpu,cpuacct\n",
    )
    assert detect(root).controllers["cpu"].mount == f"{root}/sys/fs/cgroup/cpu"


def test_only_a_part_is_mounted_inside_a_container(tmp_path: Path) -> None:
    root = mountinfo(tmp_path, "35 28 0:31 /docker/01 /a\\040b rw - cgroup cgroup rw,cpu\n")
    assert detect(root).controllers["cpu"].mount == f"{root}/a b"


def test_the_host_s_groups_in_a_container_with_a_namespace_of_its_own(tmp_path: Path) -> None:
    """As the manifests mount them, and as Linux shows it to a process four groups down."""
    root = mountinfo(
        tmp_path,
        "48 47 0:29 /../../../.. /sys/fs/cgroup ro - cgroup2 cgroup rw\n"
        "49 48 0:29 /../../../../kubepods.slice/kubepods-besteffort.slice"
        " /sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice rw - cgroup2 cgroup rw\n",
    )
    assert detect(root).unified == f"{root}/sys/fs/cgroup"


def test_the_name_of_a_directory_decides_nothing(tmp_path: Path) -> None:
    root = mountinfo(tmp_path, "35 28 0:31 / /sys/fs/cgroup/cpu rw - tmpfs cgroup rw,cpu\n")
    with pytest.raises(LayoutError, match="mount /sys/fs/cgroup"):
        detect(root)


def test_no_proc_is_said(tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match="mount /proc"):
        detect(str(tmp_path))


def test_every_file_has_a_known_controller_and_a_version() -> None:
    for name, row in FILES.items():
        assert row.controller in (*CONTROLLERS, UNIFIED), name
        assert row.v1 or row.v2, name


@pytest.mark.parametrize(
    "path", ["", "/", "//", "a/../b", "..", "a//b", "./a", "a/.", "a\n", "a\0"]
)
def test_unsafe_group_paths_are_refused(path: str) -> None:
    with pytest.raises(GroupPathError):
        normal_group(path)


def test_inside_is_by_component() -> None:
    assert normal_group("/kubepods/besteffort/") == "kubepods/besteffort"
    assert strictly_inside("kubepods/besteffort/a", "kubepods/besteffort")
    assert not strictly_inside("kubepods/besteffort2", "kubepods/besteffort")
    assert not strictly_inside("kubepods/besteffort", "kubepods/besteffort")
    assert overlaps("kubepods", "kubepods/besteffort")
    assert not overlaps("kubepods/burstable", "kubepods/besteffort")
