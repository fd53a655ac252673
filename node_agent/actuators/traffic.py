"""Network classes of the uplink as a `knob.Surface`: one token-bucket tree of ours, set by `tc`.

A root queue that somebody has set up is never touched: only what the kernel gives by itself (handle
0:) is replaced, and ours is known by a figure that nobody else would choose. The `tc` command is
asked, for the library that speaks to the kernel itself (pyroute2) would cost a node 25 MiB.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from node_agent.actuators.acts import Tc
from node_agent.actuators.beneath import UnsafePath
from node_agent.actuators.knob import Raw

UPLINK = "uplink"
"""The unit: the device of the default route."""
ROOT, TREE = "root", "tree"
NONE, OURS, FOREIGN = "none", "ours", "foreign"
FILTER = "filter"
"""The last line of a tree: traffic goes by the class of its sender's group."""
DEFAULT_MINOR = 3  # online pods': what is not marked; where there is no such class, unbounded
MARK = 7411  # r2q: of no effect, for every class of ours has a quantum of its own
QUANTUM_BYTES = range(2_000, 60_000)
LOOK_US = 10_000_000  # an answer holds so long: asking costs three processes
BYTE = 8
_DEVICE = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.@-]{0,14}", re.ASCII)
_CLASS = re.compile(r"class htb (\S+) (root|parent \S+) .*?rate (\S+) ceil (\S+)")
_TURN = re.compile(r" prio (\d+) ")
_UNITS = {"bit": 1, "Kbit": 1_000, "Mbit": 1_000_000, "Gbit": 10**9, "Tbit": 10**12}
_ROUTE_UP = 1


class Traffic:
    """The place is a device; ``net``: the kernel's network files (/proc/net)."""

    version = 0

    def __init__(self, net: str, run: Tc) -> None:
        self._net, self._run = net, run
        self._seen: dict[str, tuple[int, int, Raw]] = {}  # device -> (when, index, answer)

    def close(self) -> None:
        """Nothing is held."""

    def members(self, unit: str, deep: bool) -> list[str]:
        """The device of the default route; none without one."""
        device = uplink(self._net)
        return [] if device is None else [device]

    def look(self, place: str, files: Sequence[str]) -> tuple[int, Raw] | None:
        """The device's index, its root queue and, where that is ours, the classes below."""
        try:
            index = socket.if_nametoindex(_checked(place))
        except OSError:
            return None
        now_us = time.monotonic_ns() // 1000
        seen = self._seen.get(place)
        if seen is None or seen[1] != index or now_us - seen[0] >= LOOK_US:
            root = _root(self._run(["qdisc", "show", "dev", place]))
            tree = self._tree(place) if root == OURS else ""
            seen = self._seen[place] = now_us, index, {ROOT: root, TREE: tree}
        return index, seen[2]

    def write(self, place: str, file: str, text: str, original: str | None) -> None:
        """The root queue made ours or given back, or the classes below ours. Raises OSError."""
        at = ["dev", _checked(place)]
        try:
            if file == TREE:
                self._grow(at, text)
            elif text == OURS:
                queue = ["htb", "default", f"{DEFAULT_MINOR:x}", "r2q", str(MARK)]
                self._run(["qdisc", "add", *at, "root", "handle", "1:", *queue])
            else:
                self._run(["qdisc", "del", *at, "root"])
        finally:
            self._seen.pop(place, None)

    def clean(self, kept: Collection[str]) -> None:
        """A tree of ours that nobody remembers goes."""
        for device in self.members(UPLINK, deep=False):
            seen = self.look(device, ())
            if device not in kept and seen is not None and seen[1][ROOT] == OURS:
                self.write(device, ROOT, NONE, None)

    def _tree(self, device: str) -> str:
        lines = [
            line_of(found[1], found[2].removeprefix("parent "), _turn(line), *map(rate_of, rates))
            for line in self._run(["class", "show", "dev", device]).splitlines()
            if (found := _CLASS.match(line)) and (rates := found.groups()[2:])
        ]
        filters = self._run(["filter", "show", "dev", device, "parent", "1:"])
        return "\n".join(sorted(lines) + ([FILTER] if " cgroup " in filters else []))

    def _grow(self, at: list[str], tree: str) -> None:
        """Classes from the root down, then the filter; what is there and not asked for goes."""
        asked = [line.split() for line in tree.splitlines() if line != FILTER]
        there = [line.split() for line in self._tree(at[1]).splitlines() if line != FILTER]
        for classid, parent, turn, rate, ceil in sorted(asked):
            above = "1:" if parent == ROOT else parent
            amount = int(rate) // BYTE // 10
            quantum = min(max(amount, QUANTUM_BYTES.start), QUANTUM_BYTES.stop)
            said = ["rate", f"{rate}bit", "ceil", f"{ceil}bit", "quantum", str(quantum)]
            prio = [] if parent == ROOT else ["prio", turn]
            self._run(
                ["class", "replace", *at, "parent", above, "classid", classid, "htb", *said, *prio]
            )
        for classid, *_ in sorted(there, reverse=True):
            if classid not in {each[0] for each in asked}:
                self._run(["class", "del", *at, "classid", classid])
        if FILTER in tree.splitlines() and FILTER not in self._tree(at[1]).splitlines():
            handle = ["protocol", "all", "prio", "1", "handle", "1:", "cgroup"]
            self._run(["filter", "add", *at, "parent", "1:", *handle])


def line_of(classid: str, parent: str, turn: int, rate: int, ceil: int) -> str:
    """One class of a tree in its canonical form; rates in bit/s."""
    return f"{classid} {parent} {turn} {rate} {ceil}"


def rate_of(text: str) -> int:
    """bit/s of ``333330Kbit``. Raises ValueError."""
    number = text.rstrip("KMGTbit")
    return int(number) * _UNITS[text.removeprefix(number)]


def sayable(rate: int) -> int:
    """The largest rate that `tc` says exactly: whole thousands, millions above a milliard."""
    step = 1_000 if rate < 10**9 else 10**6 if rate < 10**12 else 10**9
    return rate // step * step


def uplink(net: str) -> str | None:
    """The device of the default route with the lowest metric, by IPv4, else by IPv6."""
    found: list[tuple[int, str]] = []
    for line in _lines(f"{net}/route")[1:]:
        words = line.split()
        if len(words) >= 8 and words[1] == words[7] == "00000000" and int(words[3], 16) & _ROUTE_UP:
            found.append((int(words[6]), words[0]))
    if not found:
        for line in _lines(f"{net}/ipv6_route"):
            words = line.split()
            if len(words) >= 10 and set(words[0] + words[1]) == {"0"} and words[9] != "lo":
                found.append((int(words[5], 16), words[9]))
    return min(found)[1] if found else None


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text("ascii").splitlines()
    except OSError:
        return []


def _root(text: str) -> str:
    """Whose the root queue is; what the kernel gives by itself has the handle 0:."""
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["qdisc"] and words[3:4] == ["root"] and words[2] != "0:":
            ours = words[1:3] == ["htb", "1:"] and f" r2q {MARK} " in line
            return OURS if ours else f"{FOREIGN} {words[1]} {words[2]}"
    return NONE


def _turn(line: str) -> int:
    found = _TURN.search(line)
    return int(found[1]) if found else 0


def _checked(device: str) -> str:
    if not _DEVICE.fullmatch(device):
        raise UnsafePath(f"{device!r} is no name of a network device")
    return device
