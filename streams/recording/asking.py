"""Asking a recorder at work to finish its open segments: a cut of "now" need not wait for them.

A request is an empty file in the recording's folder; the recorder removes it when all that it had
read before is in finished segments. So whoever shares the folder may ask, from another container
too. Asked by `slackwater record cut`, answered by `streams.recording.disk`.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from uuid import uuid4

from streams.recording.store import is_locked

REQUEST = "finish-"
LOOK_S = 0.05
MOST = 1_000


def finish_now(root: Path, wait_s: float = 10.0) -> bool:
    """Ask, and wait; True when the recorder has done it.

    False when none is at work (of a bundle none is), the folder cannot be written, or it takes
    longer than ``wait_s``: then what is finished anyway must do.
    """
    if not is_locked(root):
        return False
    request = root / f"{REQUEST}{uuid4().hex[:16]}"
    try:
        request.touch(exist_ok=False)
    except OSError:
        return False
    deadline = time.monotonic() + wait_s
    try:
        while request.exists():
            if time.monotonic() > deadline or not is_locked(root):
                return False
            time.sleep(LOOK_S)
    finally:
        request.unlink(missing_ok=True)
    return True


def asked(root: Path) -> list[Path]:
    """The requests that lie there."""
    with os.scandir(root) as entries:
        return [Path(each.path) for each in entries if each.name.startswith(REQUEST)][:MOST]


def done(requests: list[Path]) -> None:
    """Answer them."""
    for request in requests:
        request.unlink(missing_ok=True)
