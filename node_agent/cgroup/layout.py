"""Which hierarchy holds which controller on this machine: v1, v2 or a mixture of both.

Called once at start by the sampler and by the actuators. The version is a property of each
controller, not of the host, and is found by the file system type of the mount ("cgroup" is v1,
"cgroup2" is v2) in ``proc/self/mountinfo``, never by the names of directories. Everything is
relative to ``root``, so that a tree of fixture files is read the same way as the real machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from node_agent.cgroup.files import FILES, UNIFIED
from node_agent.cgroup.paths import normal_group

Version = Literal[1, 2]

CONTROLLERS: tuple[str, ...] = ("cpu", "cpuacct", "cpuset", "memory", "io", "pids", "freezer")
_V1_NAMES = {"blkio": "io"}  # names that changed between the versions
_V2_CORE = ("cpuacct", "freezer")  # cpu.stat and cgroup.freeze need no controller there
_HIERARCHY_ROOT = "/"


class LayoutError(RuntimeError):
    """The machine has no usable control groups; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """One mounted hierarchy as one controller sees it; ``mount`` already includes the root."""

    version: Version
    mount: str


class Place(NamedTuple):
    """Where one named file of one group is: ``directory`` + "/" + ``file``."""

    version: Version
    directory: str
    file: str

    @property
    def path(self) -> str:
        """The whole path."""
        return f"{self.directory}/{self.file}"


class _Mount(NamedTuple):
    point: str
    fs_root: str
    fs_type: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Controllers found, and the unified mount (pressure, freeze, kill, events) if there is one.

    ``perf_event``: the mount whose groups perf counts by. It has no files, so it is no controller
    that anything is read from; on v2 it is there unasked and not listed. ``net_cls``: where groups
    have a network class, on v1 only; pods have no group there unless somebody makes them.
    """

    root: str
    controllers: Mapping[str, Hierarchy]
    unified: str | None
    perf_event: str | None = None
    net_cls: str | None = None

    @property
    def kind(self) -> Literal["v1", "v2", "hybrid"]:
        """A word for people; nothing is decided by it."""
        if self.unified is None:
            return "v1"
        versions = {hierarchy.version for hierarchy in self.controllers.values()}
        return "v2" if versions == {2} else "hybrid"

    def hierarchy(self, controller: str) -> Hierarchy | None:
        """The hierarchy of a controller, or of the unified mount by the name ``unified``."""
        if controller == UNIFIED:
            return None if self.unified is None else Hierarchy(2, self.unified)
        return self.controllers.get(controller)

    def directory(self, controller: str, group: str) -> str | None:
        """Directory of ``group`` in a controller's hierarchy; None: no such controller here."""
        hierarchy = self.hierarchy(controller)
        return None if hierarchy is None else f"{hierarchy.mount}/{normal_group(group)}"

    def place(self, name: str, group: str) -> Place | None:
        """Where the file called ``name`` in `FILES` is for ``group``.

        None: this machine has no such controller, or its version has no such file. The file may
        still be missing on disk. Raises KeyError for a name that is not in the table.
        """
        row = FILES[name]
        hierarchy = self.hierarchy(row.controller)
        if hierarchy is None:
            return None
        file = row.v1 if hierarchy.version == 1 else row.v2
        if file is None:
            return None
        return Place(hierarchy.version, f"{hierarchy.mount}/{normal_group(group)}", file)

    @property
    def anchor(self) -> str:
        """The mount that says whether a group exists: that of cpuacct, which every group has."""
        hierarchy = self.controllers.get("cpuacct")
        return self.mounts()[0] if hierarchy is None else hierarchy.mount

    def versions(self) -> dict[str, int]:
        """Version of each controller found, in the order of `CONTROLLERS`."""
        found = ((name, self.controllers.get(name)) for name in CONTROLLERS)
        return {name: hierarchy.version for name, hierarchy in found if hierarchy is not None}

    def mounts(self) -> tuple[str, ...]:
        """Each mount in use once, in the order of `CONTROLLERS`, the unified one last."""
        found = [h.mount for name in CONTROLLERS if (h := self.controllers.get(name)) is not None]
        if self.unified is not None:
            found.append(self.unified)
        return tuple(dict.fromkeys(found))


def detect(root: str = "/") -> Layout:
    """Read ``<root>/proc/self/mountinfo`` and return the layout.

    Raises `LayoutError` when no control group file system is mounted.
    """
    base = root.rstrip("/")
    mountinfo = Path(f"{base}/proc/self/mountinfo")
    try:
        text = mountinfo.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise LayoutError(f"cannot read {mountinfo}: {error.strerror}; mount /proc") from error
    mounts = _cgroup_mounts(text)
    controllers: dict[str, Hierarchy] = {}
    perf_event: str | None = None
    net_cls: str | None = None
    for mount in mounts:
        if mount.fs_type == "cgroup":
            if net_cls is None and "net_cls" in mount.options:
                net_cls = base + mount.point
            if perf_event is None and "perf_event" in mount.options:
                perf_event = base + mount.point
            for option in mount.options:
                name = _V1_NAMES.get(option, option)
                if name in CONTROLLERS:
                    controllers.setdefault(name, Hierarchy(1, base + mount.point))
    unified = next((base + m.point for m in mounts if m.fs_type == "cgroup2"), None)
    if unified is not None:
        for name in (*_enabled(unified), *_V2_CORE):
            if name in CONTROLLERS:
                controllers.setdefault(name, Hierarchy(2, unified))
    if not controllers:
        raise LayoutError(
            f"no control group hierarchy is mounted under {root}; mount /sys/fs/cgroup into this"
            " namespace (mount -t cgroup2 none /sys/fs/cgroup)"
        )
    return Layout(root, controllers, unified, perf_event or unified, net_cls)


def _cgroup_mounts(text: str) -> list[_Mount]:
    """The cgroup lines of mountinfo, whole hierarchies before bind mounts of a part of one."""
    found: list[_Mount] = []
    for line in text.splitlines():
        left, separator, right = line.partition(" - ")
        fields, rest = left.split(" "), right.split(" ")
        if not separator or len(fields) < 6 or len(rest) < 3:
            continue
        if rest[0] in ("cgroup", "cgroup2"):
            options = tuple(rest[2].split(","))
            found.append(_Mount(_unescape(fields[4]), _unescape(fields[3]), rest[0], options))
    return sorted(found, key=lambda mount: mount.fs_root != _HIERARCHY_ROOT)


def _unescape(field: str) -> str:
    """Undo the octal escapes of mountinfo."""
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, char)
    return field


def _enabled(unified: str) -> list[str]:
    """Controllers that the unified hierarchy holds; none when the file is missing."""
    try:
        return Path(f"{unified}/cgroup.controllers").read_text(encoding="ascii").split()
    except FileNotFoundError:
        return []
