from __future__ import annotations

import errno
import os
import resource
import shutil
from pathlib import Path

import pytest

from node_agent.cgroup import handles
from node_agent.cgroup.handles import Descriptors, Files, GroupFiles, NodeFiles, Vanished
from node_agent.cgroup.layout import Layout, detect
from tests.node_agent.kernels import KERNELS

GROUP = "kubepods/burstable/pod8c1d2e3f405162738495a6b7c8d9e0f1"


@pytest.fixture
def copied(tmp_path: Path) -> Layout:
    shutil.copytree(KERNELS / "v1-centos", tmp_path / "k")
    return detect(str(tmp_path / "k"))


class Refusing:
    """A file that the kernel refuses with one error number, as pressure does when it is off."""

    def __init__(self, code: int) -> None:
        self.code = code
        self.asked = 0
        self.directory = ""
        self.reason: handles.Reason | None = None
        self.retry_us = 0

    def read(self, _descriptors: Descriptors) -> bytes:
        self.asked += 1
        raise OSError(self.code, os.strerror(self.code))

    def close(self, _descriptors: Descriptors) -> None:
        """Nothing is kept."""


class RefusingFiles(Files):
    def __init__(self, code: int) -> None:
        super().__init__(Descriptors(1))
        self.file = Refusing(code)

    def locate(self, name: str) -> handles._File:
        assert name
        return self.file  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("code", "reason"),
    [(errno.ENOENT, "not_built"), (errno.EOPNOTSUPP, "disabled"), (errno.EACCES, "denied")],
)
def test_why_a_file_is_absent_and_when_it_is_asked_for_again(code: int, reason: str) -> None:
    files = RefusingFiles(code)
    assert files.read("proc/pressure/cpu", 0) is None
    assert files.reasons() == {"proc/pressure/cpu": reason}
    assert files.read("proc/pressure/cpu", handles.REPROBE_US - 1) is None
    assert files.file.asked == 1, "asked again within ten minutes"
    assert files.read("proc/pressure/cpu", handles.REPROBE_US) is None
    assert files.file.asked == 2


def test_a_real_failure_is_no_absence() -> None:
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        RefusingFiles(errno.EIO).read("x", 0)


def test_what_appears_later_is_found(tmp_path: Path) -> None:
    files = NodeFiles(str(tmp_path), Descriptors(9))
    assert files.read("late", 0) is None
    (tmp_path / "late").write_text("here")
    assert files.read("late", handles.REPROBE_US) == b"here"
    assert files.reasons() == {}
    files.close()


def test_kept_and_opened_for_each_read_give_the_same(copied: Layout) -> None:
    kept, short = Descriptors(100), Descriptors(0)
    a, b = GroupFiles(copied, GROUP, kept), GroupFiles(copied, GROUP, short)
    for name in ("cpu_usage", "cpu_stat", "memory_stat", "io_bytes", "cpu_usage"):
        assert a.read(name, 0) == b.read(name, 0)
        assert a.read(name, 0)
    assert (kept.kept, short.kept) == (4, 0)
    assert short.shortfalls == 5
    a.close()
    assert kept.kept == 0


def test_a_group_that_goes_half_way_has_vanished(copied: Layout) -> None:
    files = GroupFiles(copied, GROUP, Descriptors(0))
    assert files.read("cpu_usage", 0)
    for mount in copied.mounts():
        shutil.rmtree(f"{mount}/{GROUP}", ignore_errors=True)
    with pytest.raises(Vanished):
        files.read("memory_stat", 0)
    files.leave()
    assert files.gone
    assert not files.meet()


def test_a_group_made_anew_under_the_same_path_is_another_group(copied: Layout) -> None:
    files = GroupFiles(copied, GROUP, Descriptors(0))
    old = Path(copied.anchor) / GROUP
    new = old.with_name("new")
    new.mkdir()
    (new / "cpuacct.usage").write_text("5")
    shutil.rmtree(old)
    new.rename(old)
    with pytest.raises(Vanished):
        files.read("cpu_stat", 0)
    assert files.meet()
    assert files.read("cpu_usage", 0) == b"5"


def test_a_hierarchy_without_the_group_is_absence_not_removal(copied: Layout) -> None:
    group = "kubepods/pod11111111-2222-3333-4444-555555555555"  # has no memory group in this tree
    files = GroupFiles(copied, group, Descriptors(9))
    assert files.read("memory_stat", 0) is None
    assert files.reasons() == {"memory_stat": "no_group"}
    home = Path(copied.controllers["memory"].mount) / group
    home.mkdir()
    (home / "memory.stat").write_text("total_cache 1\n")
    assert files.read("memory_stat", handles.REPROBE_GROUP_US) == b"total_cache 1\n"
    files.close()


def test_the_descriptor_limit_is_raised() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    try:
        assert handles.raise_descriptor_limit() == hard
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_group_gone_from_its_first_hierarchy_is_gone_though_this_one_never_had_it(
    copied: Layout,
) -> None:
    group = "kubepods/pod11111111-2222-3333-4444-555555555555"  # has no memory group in this tree
    files = GroupFiles(copied, group, Descriptors(9))
    shutil.rmtree(Path(copied.anchor) / group)
    with pytest.raises(Vanished):
        files.read("memory_stat", 0)


@pytest.mark.parametrize("kept", [0, 9])
def test_files_longer_than_one_read_are_read_to_their_end(tmp_path: Path, kept: int) -> None:
    text = b"".join(b"nr_counter_%d 1\n" % index for index in range(5000)) + b"oom_kill 3\n"
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/vmstat").write_bytes(text)
    files = NodeFiles(str(tmp_path), Descriptors(kept))
    assert len(text) > 2 * handles.READ_BYTES
    assert files.read("proc/vmstat", 0) == text
    assert files.read("proc/vmstat", 1) == text
    files.close()
