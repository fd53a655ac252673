"""Where a command that looks back may write: not over what it reads, not over a stranger's file.

Called by the commands that make files out of recordings, before anything is read.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

HEAD_BYTES = 4096


class BadTarget(Exception):
    """Nothing may be written there; the message says why and what to do."""

    says_what_to_do = True


def check_target(
    target: Path,
    source: Path | None,
    *,
    force: bool,
    ours: Callable[[bytes], bool] = lambda head: False,  # noqa: ARG005
) -> None:
    """Raise BadTarget unless ``target`` may be written or replaced.

    ``source``: the recording that is read; ``force`` does not reach it. ``ours`` knows from its
    first `HEAD_BYTES` a file that the same command wrote before: that one is replaced unasked.
    """
    if not target.parent.is_dir():
        raise BadTarget(f"{target.parent} is no folder: make it first, or write elsewhere")
    if source is not None and _is_part_of(target, source):
        raise BadTarget(f"{target} belongs to what is read: write elsewhere")
    if not target.exists():
        return
    if not target.is_file():
        raise BadTarget(f"{target} is there already, and is no file: take another name")
    if force:
        return
    with target.open("rb") as file:
        head = file.read(HEAD_BYTES)
    if not ours(head):
        raise BadTarget(f"{target} is there already: take another name, or --force")


def write_whole(target: Path, content: bytes) -> None:
    """Put ``content`` at ``target``, or leave what was there. Raises BadTarget if it cannot be."""
    partial = target.with_name(f"{target.name}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(target)
    except OSError as error:
        raise BadTarget(
            f"{target} cannot be written: {error.strerror or error}; what was there stays"
        ) from None
    finally:
        partial.unlink(missing_ok=True)


def _is_part_of(target: Path, source: Path) -> bool:
    """Whether it is the source, or lies in its folder."""
    if source.is_dir():
        return source.resolve() in target.resolve().parents
    return target.exists() and source.exists() and target.samefile(source)
