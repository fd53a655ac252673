"""A resctrl tree of plain files that answers as the kernel's does; played, for there is none here.

What the kernel does and this does too: a new group has all that is free; an empty or torn mask, an
unknown domain, bandwidth below the least, or a line without its end is refused (EINVAL); bandwidth
is rounded up; a task that is added leaves its old group, one that has ended is not found (ESRCH); a
group that is taken away gives its tasks to the root; there are so many groups and no more (ENOSPC).
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

from node_agent.actuators.resctrl import MOUNT

ALIVE = tuple(range(100, 140))
FULL = "    MB:0=100;1=100\n    L3:0=7ff;1=7ff"
BOUNDS = {
    "L3/cbm_mask": "7ff", "L3/min_cbm_bits": "2", "L3/num_closids": "16",
    "MB/min_bandwidth": "10", "MB/bandwidth_gran": "10", "MB/num_closids": "8",
}  # fmt: skip


def make_resctrl(root: Path, closids: int = 8) -> Path:
    """A tree below ``root``; all tasks are in the root's group."""
    top = root / MOUNT
    for file, text in {**BOUNDS, "MB/num_closids": str(closids)}.items():
        (top / "info" / file).parent.mkdir(parents=True, exist_ok=True)
        (top / "info" / file).write_text(text + "\n")
    (top / "schemata").write_text(FULL + "\n")
    (top / "tasks").write_text("".join(f"{task}\n" for task in ALIVE))
    return top


def tasks(top: Path, group: str = "") -> set[int]:
    """Who is in a group."""
    return {int(line) for line in (top / group / "tasks").read_text().split()}


def groups(top: Path) -> list[Path]:
    """The control groups, the root's first."""
    return [top, *sorted(p for p in top.iterdir() if (p / "tasks").exists())]


def make_group(top: Path, name: str) -> None:
    """As mkdir does."""
    if len(groups(top)) >= int((top / "info/MB/num_closids").read_text()):
        raise OSError(errno.ENOSPC, "no closid")
    (top / name).mkdir()
    (top / name / "schemata").write_text((top / "schemata").read_text())
    (top / name / "tasks").write_text("")


def remove_group(top: Path, name: str) -> None:
    """As rmdir does."""
    for task in tasks(top, name):
        move(top, "", task)
    shutil.rmtree(top / name)


def move(top: Path, group: str, task: int) -> None:
    """As a write to its tasks does."""
    if all(task not in tasks(top, each.name if each != top else "") for each in groups(top)):
        raise OSError(errno.ESRCH, "no such task")
    for each in groups(top):
        left = {int(line) for line in (each / "tasks").read_text().split()} - {task}
        if each == top / group:
            left.add(task)
        (each / "tasks").write_text("".join(f"{one}\n" for one in sorted(left)))


def answer(path: Path, text: str) -> None:
    """One write to a file of the tree."""
    top = path.parent if path.parent.name == "resctrl" else path.parent.parent
    if path.name == "tasks":
        move(top, "" if path.parent == top else path.parent.name, int(text))
        return
    if not text.endswith("\n"):
        raise OSError(errno.EINVAL, "a line has an end")
    before = dict(line.strip().split(":") for line in path.read_text().splitlines())
    for line in text.splitlines():
        resource, _, entries = line.partition(":")
        if resource not in before:
            raise OSError(errno.EINVAL, "no such resource")
        values = dict(entry.split("=") for entry in before[resource].split(";"))
        for entry in entries.split(";"):
            domain, _, value = entry.partition("=")
            if domain not in values:
                raise OSError(errno.EINVAL, "no such domain")
            values[domain] = _mask(value) if resource == "L3" else _bandwidth(value)
        before[resource] = ";".join(f"{domain}={value}" for domain, value in values.items())
    path.write_text("".join(f"    {name}:{entries}\n" for name, entries in before.items()))


def _mask(text: str) -> str:
    mask = int(text, 16)
    lowest = mask & -mask
    if mask == 0 or mask > 0x7FF or mask.bit_count() < 2 or (mask + lowest) & mask:
        raise OSError(errno.EINVAL, "no such mask")
    return f"{mask:x}"


def _bandwidth(text: str) -> str:
    if not 10 <= int(text) <= 100:
        raise OSError(errno.EINVAL, "no such bandwidth")
    return f"{-(-int(text) // 10) * 10:>3}"


def name_of(dir_fd: int) -> Path:
    return Path(f"/proc/self/fd/{dir_fd}").readlink()
