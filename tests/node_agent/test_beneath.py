"""Paths below a mount, with openat2 and without: nothing leads out."""

from __future__ import annotations

from pathlib import Path

import pytest

from node_agent.actuators import beneath
from node_agent.actuators.beneath import Beneath, UnsafePath, children, read_there
from tests.support import unavailable


@pytest.fixture(params=["openat2", "walk"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "walk":
        monkeypatch.setattr(beneath, "_has_openat2", lambda: False)
    elif not beneath._has_openat2():
        unavailable("this kernel, or a filter of system calls, has no openat2")


def tree(folder: Path) -> Beneath:
    (folder / "in/a/b").mkdir(parents=True)
    (folder / "in/a/file").write_text("1\n")
    (folder / "out").mkdir()
    (folder / "out/file").write_text("secret\n")
    (folder / "in/a/link").symlink_to(folder / "out")
    (folder / "in/a/up").symlink_to("../../out")
    (folder / "in/a/linked").symlink_to(folder / "out/file")
    return Beneath(str(folder / "in"))


def test_groups_and_files_are_found(way: None, tmp_path: Path) -> None:
    there = tree(tmp_path)
    with there.open(("a",)) as directory:
        assert children(directory) == ["b"]
        assert read_there(directory, "file") == "1"
        assert read_there(directory, "none") is None
        there.write(directory, "file", b"2")
    assert (tmp_path / "in/a/file").read_text().startswith("2")
    there.close()


@pytest.mark.parametrize(
    "parts", [("a", "link"), ("a", "up"), ("a", "file"), ("a", "link", "x"), ("a", "linked")]
)
def test_r6_symlinks_and_files_in_the_way_are_refused(
    way: None, tmp_path: Path, parts: tuple[str, ...]
) -> None:
    there = tree(tmp_path)
    with pytest.raises(UnsafePath, match="not followed"), there.open(parts):
        pass
    there.close()


@pytest.mark.parametrize(
    "parts", [(), ("..",), ("a", ".."), (".",), ("",), ("a/b",), ("/etc",), ("a\0b",)]
)
def test_r6_what_is_no_plain_path_is_refused(
    way: None, tmp_path: Path, parts: tuple[str, ...]
) -> None:
    there = tree(tmp_path)
    with pytest.raises(UnsafePath, match="no plain path"), there.open(parts):
        pass
    there.close()


def test_r6_a_symlinked_file_is_not_written(way: None, tmp_path: Path) -> None:
    there = tree(tmp_path)
    with there.open(("a",)) as directory, pytest.raises(OSError, match="symbolic links"):
        there.write(directory, "linked", b"x")
    assert (tmp_path / "out/file").read_text() == "secret\n"
    there.close()


def test_r6_another_file_system_is_not_entered(way: None) -> None:
    there = Beneath("/")
    with pytest.raises(UnsafePath, match="another file system"), there.open(("proc",)):
        pass
    there.close()


def test_a_group_that_is_gone_is_no_unsafe_path(way: None, tmp_path: Path) -> None:
    there = tree(tmp_path)
    with pytest.raises(FileNotFoundError), there.open(("a", "gone")):
        pass
    there.close()
