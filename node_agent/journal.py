"""The node's own memory: original values, every command seen, every act, starts of the agent.

Append-only JSON lines in the state directory. `node_agent.obey` writes a line before the act it
announces; `slackwater node show` and `release-all` read it; a checker proves from it that no
command had effect twice. A torn last line is cut off. When the file outgrows its bound the
standing state is written to a fresh one and the old one kept as `journal.1.jsonl`.

Originals belong to one start of the kernel: after a reboot the groups are new and they are void.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from node_agent import journal_text, plain_file
from node_agent.journal_text import Line

log = logging.getLogger(__name__)
NAME, OLD_NAME = "journal.jsonl", "journal.1.jsonl"
SPOILT_NAME = "journal.spoilt"
MAX_BYTES = 4 << 20
READ_BYTES = 8 * MAX_BYTES  # no agent writes as much
_OPEN = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
COMMANDS_KEPT = 1024
BEGUN = ("started", "handed_over")  # outcomes of a command that will be answered once more
SYNCED = frozenset({"boot", "original", "intent", "released", "standing", "kept", "returned"})
Fsync = Literal["acts", "always", "never"]


@dataclass(frozen=True, slots=True)
class Kept:
    """What one place said before a knob of isolation was turned there.

    ``unit``: the pod or group with which it was turned; ``identity``: which place of that name;
    ``root``: the best-effort root that it lies in, "" for all else. Of the values only those that
    were written.
    """

    unit: str
    identity: int
    root: str
    values: dict[str, str]


@dataclass(slots=True)
class Remembered:
    """What the lines add up to.

    ``originals``: best-effort root -> knob -> group below it ("." for itself) -> values.
    ``kept``: knob of isolation -> place -> its original (`Kept`), wherever it lies.
    """

    boot: str = ""
    kernel_boot: str = ""
    superseded: list[str] = field(default_factory=list)
    originals: dict[str, dict[str, dict[str, dict[str, int]]]] = field(default_factory=dict)
    kept: dict[str, dict[str, Kept]] = field(default_factory=dict)
    commands: dict[str, Line] = field(default_factory=dict)  # id -> its last line
    newest: dict[str, list[int]] = field(default_factory=dict)  # decider -> [incarnation, offset]
    granted_milli: int | None = None
    in_force_milli: int | None = None
    evicted_mono_us: int | None = None  # when the last eviction began, by this kernel's clock
    broken_lines: int = 0


class Journal:
    """One writer a state directory (the agent's lock sees to that)."""

    def __init__(
        self,
        directory: Path,
        kernel_boot: str,
        fsync: Fsync = "acts",
        max_bytes: int = MAX_BYTES,
        write: Callable[[int, bytes], int] = os.write,
    ) -> None:
        """Open or create; raises OSError when the directory cannot be written."""
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._path = directory / NAME
        self._fsync, self._max_bytes, self._write = fsync, max_bytes, write
        try:
            self.state, whole = _read(self._path)
        except ValueError as error:
            os.replace(self._path, directory / SPOILT_NAME)
            log.error(  # noqa: TRY400  (the reason says it all)
                "%s; put aside as %s: values found now count as originals", error, SPOILT_NAME
            )
            self.state, whole = Remembered(broken_lines=1), 0
        if self.state.kernel_boot != kernel_boot:
            _forget_kernel(self.state)
            self.state.kernel_boot = kernel_boot
        self._descriptor = os.open(self._path, _OPEN, 0o640)
        os.ftruncate(self._descriptor, whole)
        os.lseek(self._descriptor, 0, os.SEEK_END)
        self._size = whole

    def close(self) -> None:
        """Sync and close; twice is once."""
        if self._descriptor >= 0:
            os.fsync(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def boot(self, boot: str, mono_us: int) -> None:
        """This start of the agent; the one before is superseded."""
        self.append(
            {
                "kind": "boot",
                "boot": boot,
                "kernel_boot": self.state.kernel_boot,
                "supersedes": self.state.boot,
                "mono_us": mono_us,
            }
        )

    def originals(self, root: str, knob: str) -> dict[str, dict[str, int]]:
        """Group -> values; empty when none were kept."""
        return self.state.originals.get(root, {}).get(knob, {})

    def keep_originals(self, root: str, rows: Iterable[tuple[str, str, dict[str, int]]]) -> None:
        """Original values, (knob, group, values) each, all on the disk at once: before the first
        write to them, or when their owner has changed them.
        """
        self._append(
            [
                {"kind": "original", "root": root, "knob": knob, "group": group, "values": values}
                for knob, group, values in rows
                if self.originals(root, knob).get(group) != values
            ]
        )

    def forget(self, root: str, knob: str, group: str) -> None:
        """The group is gone, and its original with it."""
        if group in self.originals(root, knob):
            self.append({"kind": "gone", "root": root, "knob": knob, "group": group})

    def kept(self, knob: str) -> dict[str, Kept]:
        """Place -> original; empty when none were kept."""
        return self.state.kept.get(knob, {})

    def keep(self, knob: str, places: Mapping[str, Kept]) -> None:
        """Originals of many places in one line, before the first write to them."""
        if places:
            self.append({"kind": "kept", "knob": knob, "places": dict(places)})

    def returned(self, knob: str, places: Collection[str]) -> None:
        """These say their own again, or are gone."""
        mine = sorted(self.kept(knob).keys() & set(places))
        if mine:
            self.append({"kind": "returned", "knob": knob, "places": mine})

    def append(self, line: Line) -> None:
        """One line, whole or (after a crash) not at all."""
        self._append([line])

    def _append(self, lines: Sequence[Line]) -> None:
        """Lines in one write and one sync; after a crash the first of them, each whole."""
        if not lines:
            return
        raw = b"".join(map(journal_text.dumps, lines))
        if self._size + len(raw) > self._max_bytes:
            self._rotate()
        written = self._write(self._descriptor, raw)
        if written != len(raw):
            os.ftruncate(self._descriptor, self._size)
            raise OSError(28, f"journal: {written} of {len(raw)} bytes written; free some space")
        self._size += len(raw)
        for line in lines:
            _fold(self.state, line)
        acts = any(line["kind"] in SYNCED for line in lines)
        if self._fsync == "always" or (self._fsync == "acts" and acts):
            os.fsync(self._descriptor)

    def _rotate(self) -> None:
        """Standing state into a fresh file; both renames are atomic, so one of the two is whole."""
        raw = journal_text.dumps({"kind": "standing", **_standing(self.state)})
        fresh = self._directory / (NAME + ".new")
        descriptor = os.open(fresh, _OPEN | os.O_TRUNC, 0o640)
        os.write(descriptor, raw)
        os.fsync(descriptor)
        old = self._directory / OLD_NAME
        old.unlink(missing_ok=True)
        os.link(self._path, old)
        os.replace(fresh, self._path)
        os.close(self._descriptor)
        self._descriptor, self._size = descriptor, len(raw)


def recall(directory: Path) -> Remembered:
    """What the journal in ``directory`` says, without changing it; empty when there is none.

    Raises ValueError for a file that no agent wrote.
    """
    return _read(directory / NAME)[0]


def _read(path: Path) -> tuple[Remembered, int]:
    """The state and the length of the file's whole lines. Raises ValueError for no plain file."""
    state = Remembered()
    try:
        raw = plain_file.read(str(path), READ_BYTES, follow=False)
    except FileNotFoundError:
        return state, 0
    whole = raw.rfind(b"\n") + 1
    for each in raw[:whole].split(b"\n")[:-1]:
        try:
            _fold(state, journal_text.loads(each))
        except (ValueError, KeyError, TypeError):
            state.broken_lines += 1
    return state, whole


def _fold(state: Remembered, line: Line) -> None:
    """One line into the state."""
    kind = line["kind"]
    if kind == "boot":
        if line["kernel_boot"] != state.kernel_boot:
            _forget_kernel(state)
        if state.boot:
            state.superseded = [*state.superseded[-63:], state.boot]
        state.boot, state.kernel_boot = line["boot"], line["kernel_boot"]
    elif kind == "original":
        knobs = state.originals.setdefault(line["root"], {})
        knobs.setdefault(line["knob"], {})[line["group"]] = line["values"]
    elif kind == "gone":
        state.originals.get(line["root"], {}).get(line["knob"], {}).pop(line["group"], None)
    elif kind == "released":
        knobs = state.originals.get(line["root"], {})
        knobs.pop(line["knob"], None)
        if not knobs:
            state.originals.pop(line["root"], None)
            state.in_force_milli = None
    elif kind in ("kept", "returned"):
        _fold_kept(state, line)
    elif kind in ("command", "intent"):
        _fold_command(state, line)
    elif kind == "in_force":
        state.in_force_milli, state.granted_milli = line["in_force_milli"], line["granted_milli"]
    elif kind == "standing":
        for name in _standing(state).keys() & line.keys():
            setattr(state, name, line[name])
        state.kept = {knob: _kept(places) for knob, places in line.get("kept", {}).items()}


def _fold_kept(state: Remembered, line: Line) -> None:
    """Originals of isolation, kept or given back."""
    of_knob = state.kept.setdefault(line["knob"], {})
    if line["kind"] == "kept":
        of_knob.update(_kept(line["places"]))
    else:
        for place in line["places"]:
            of_knob.pop(place, None)
    if not of_knob:
        del state.kept[line["knob"]]


def _kept(places: Mapping[str, Any]) -> dict[str, Kept]:
    """Originals by place, from a line of the file or from the line that is being written."""
    return {
        place: each if isinstance(each, Kept) else Kept(**each) for place, each in places.items()
    }


def _forget_kernel(state: Remembered) -> None:
    """Another start of the kernel: groups, quotas and the monotonic clock are new."""
    state.originals.clear()
    state.kept.clear()
    state.in_force_milli = None
    state.evicted_mono_us = None
    for line in state.commands.values():  # who was on his way out then is not on this machine
        if line["outcome"] in BEGUN or line["kind"] == "intent":
            line.update(kind="command", outcome="failed", reason="interrupted")


def _fold_command(state: Remembered, line: Line) -> None:
    """Commands by id, and the newest order a decider; local acts have no place in the order."""
    if line["kind"] == "intent":
        state.evicted_mono_us = line["mono_us"]
    if line["source"] == "command" and line["outcome"] != "duplicate":
        order = [line["incarnation"], line["offset"]]
        if line["decider"] == "suppress":
            state.granted_milli = line["granted_milli"]
        if line["ordered"]:
            state.newest[line["decider"]] = max(state.newest.get(line["decider"], order), order)
        state.commands.pop(line["id"], None)
        state.commands[line["id"]] = line
        while len(state.commands) > COMMANDS_KEPT:
            del state.commands[next(iter(state.commands))]


def _standing(state: Remembered) -> Line:
    """What a fresh file must know; the newest quarter of the commands: order refuses older ones."""
    kept = list(state.commands.items())[-COMMANDS_KEPT // 4 :]
    return {
        "boot": state.boot,
        "kernel_boot": state.kernel_boot,
        "superseded": state.superseded,
        "originals": state.originals,
        "kept": state.kept,
        "commands": dict(kept),
        "newest": state.newest,
        "granted_milli": state.granted_milli,
        "in_force_milli": state.in_force_milli,
        "evicted_mono_us": state.evicted_mono_us,
    }
