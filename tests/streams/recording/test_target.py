"""Nothing that looks back writes over what it reads, or over what others made."""

from __future__ import annotations

from pathlib import Path

import pytest

from streams.recording.target import BadTarget, check_target, write_whole


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "incident.slack"
    path.write_bytes(b"precious")
    return path


@pytest.mark.parametrize("force", [False, True])
def test_what_is_read_is_never_written_over(bundle: Path, force: bool) -> None:
    link = bundle.parent / "link.slack"
    link.symlink_to(bundle)
    hard = bundle.parent / "hard.slack"
    hard.hardlink_to(bundle)
    for target in (bundle, link, hard, bundle.parent / "x" / ".." / bundle.name):
        (bundle.parent / "x").mkdir(exist_ok=True)
        with pytest.raises(BadTarget, match="belongs to what is read"):
            check_target(target, bundle, force=force)
    inside = bundle.parent / "x" / "page.html"
    with pytest.raises(BadTarget, match="belongs to what is read"):
        check_target(inside, bundle.parent, force=force)


def test_a_file_that_is_there_stays_unless_it_is_ours_or_forced(
    bundle: Path, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"secret")
    with pytest.raises(BadTarget, match="--force"):
        check_target(key, bundle, force=False)
    check_target(key, bundle, force=True)
    check_target(key, bundle, force=False, ours=lambda head: head == b"secret")
    check_target(tmp_path / "new", bundle, force=False)


def test_what_is_no_file_is_refused_even_by_force(bundle: Path, tmp_path: Path) -> None:
    for target, says in (
        (tmp_path, "no file"), (Path("/dev/null"), "no file"), (tmp_path / "no" / "x", "no folder"),
    ):  # fmt: skip
        with pytest.raises(BadTarget, match=says):
            check_target(target, bundle, force=True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_leaves_what_was_there_and_nothing_half(tmp_path: Path) -> None:
    target = tmp_path / "account.json"
    target.write_bytes(b"of last week")
    (tmp_path / "account.json.partial").symlink_to("/dev/full")
    with pytest.raises(BadTarget, match=r"account\.json cannot be written: No space left"):
        write_whole(target, b"new")
    assert target.read_bytes() == b"of last week"
    assert list(tmp_path.iterdir()) == [target]
    write_whole(target, b"new")
    assert target.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [target]
