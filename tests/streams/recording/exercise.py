"""A process that opens damaged bundles one after the other, with little memory.

    python -m tests.streams.recording.exercise GOOD.slack FOLDER FIRST COUNT [--memory MIB]

One line of JSON before each bundle and one after; who started it sees by the last line what a
crash happened on. Reading a bundle means all that we do with one: check, read, replay, tables, cut.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import logging
import resource
import shutil
import signal
import sys
import traceback
from pathlib import Path
from random import Random
from typing import Any

from streams.recording import BadRecording, Recording, open_recording
from streams.recording.cut import Wanted, choose, write
from streams.recording.pseudonyms import pseudonymised
from streams.recording.tables import TABLES
from streams.replay.errors import CannotReplay
from streams.replay.fold import Fold
from streams.replay.start import start_of
from tests.streams.recording.damage import Good, damaged, folder

MIB = 1 << 20
EVIL = ("evil", "page")
PATIENCE_S = 60
CLEAR = (BadRecording, CannotReplay)
"""What may come of a bad bundle: an error that says what is wrong and what to do."""


SHARES = {"fold": 0.35, "table": 0.2, "cut": 0.1}
"""How many of the bundles that open are replayed, made tables of, cut; evil ones always are."""


def looked_at(path: Path, dice: Random, *, thorough: bool) -> dict[str, Any]:
    """Do with a bundle all that we do; what was found. Raises nothing but what is a bug."""
    try:
        recording = open_recording(path)
    except BadRecording as error:
        return {"opens": False, "says": str(error)[:120]}
    done = {what for what, share in SHARES.items() if thorough or dice.random() < share}
    with recording:
        sound = recording.verify()
        records = sum(1 for place in recording.places for _ in recording.records(*place))
        refused = _folded(recording) if "fold" in done else []
        refused += _tabled(recording, dice) if "table" in done else []
        refused += _cut(recording, path, dice) if "cut" in done else []
        return {
            "opens": True, "sound": sound, "records": records, "refused": len(refused),
            "problems": len(recording.problems),
        }  # fmt: skip


def _folded(recording: Recording) -> list[str]:
    refused = []
    for partition in recording.partitions()[:4]:
        try:
            for _ in Fold(recording, partition, start_of(recording, partition)):
                pass
        except CLEAR as error:
            refused.append(str(error))
    return refused


def _tabled(recording: Recording, dice: Random) -> list[str]:
    refused = []
    for name in dice.sample(sorted(TABLES), 3):
        try:
            recording.table(name)
        except CLEAR as error:
            refused.append(str(error))
    return refused


def _cut(recording: Recording, path: Path, dice: Random) -> list[str]:
    target = path.with_name("cut.slack")
    segments = recording.manifest.segments
    try:
        times = [s.first_ms for s in segments] + [s.last_ms for s in segments] or [0]
        chosen = choose(recording, Wanted((min(times) + max(times)) // 2, max(times) + 1))
        write(pseudonymised(recording, chosen) if dice.random() < 0.5 else chosen, target)
    except CLEAR as error:
        return [str(error)]
    finally:
        target.unlink(missing_ok=True)
    return []


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("good", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--memory", type=int, default=1_536, help="MiB beyond what it begins with")
    asked = parser.parse_args()
    logging.disable()
    faulthandler.enable()
    good = Good.read(asked.good)
    looked_at(asked.good, Random(0), thorough=True)  # whatever is loaded late is loaded now
    here = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    most = here + asked.memory * MIB
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for number in range(asked.first, asked.first + asked.count):
        _one(good, asked.folder, number)


def _one(good: Good, root: Path, number: int) -> None:
    dice = Random(number)
    path = root / "in.slack"
    _clear(path)
    if number % 40 == 39:
        path.mkdir()
        outside = root / "outside"
        outside.mkdir(exist_ok=True)
        kind = "folder " + folder(good, path, dice, outside)
    else:
        kind, raw = damaged(good, number)
        path.write_bytes(raw)
    _say({"number": number, "kind": kind})
    signal.alarm(PATIENCE_S)
    found: dict[str, Any]
    try:
        found = looked_at(path, dice, thorough=kind.startswith(EVIL))
    except Exception:  # noqa: BLE001  # a bug is what is looked for
        found = {"bug": traceback.format_exc()[-3_000:]}
    signal.alarm(0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    _say({"number": number, "kind": kind, "peak_mib": peak, **found})


def _clear(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
        shutil.rmtree(path.with_name("outside"), ignore_errors=True)
    path.unlink(missing_ok=True)


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
