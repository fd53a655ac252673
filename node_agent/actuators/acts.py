"""What knobs do to the machine other than by writing a file; tests that play a kernel give others.

`node_agent.surfaces` hands them to the surfaces that need them.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from typing import NamedTuple

from node_agent.actuators.core_cookies import CoreCookies
from node_agent.actuators.failure import Named

TC_TIMEOUT_S = 5.0
_NO_CLASSIFIER = "classifier not found"

Tc = Callable[[Sequence[str]], str]
"""Arguments of `tc` -> what it says. Raises OSError."""


def tc(arguments: Sequence[str]) -> str:
    """The command itself. Raises OSError; what the kernel said is in the text."""
    said = f"tc {' '.join(arguments)}"
    try:
        done = subprocess.run(
            ["tc", *arguments], capture_output=True, text=True, timeout=TC_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise OSError(errno.ETIMEDOUT, f"{said}: no answer") from None
    if done.returncode:
        text = " ".join((done.stderr or done.stdout).split())
        if _NO_CLASSIFIER in text:
            raise Named(errno.ENOENT, "no_classifier", f"{said}: {text}")
        raise OSError(errno.EIO, f"{said}: {text}")
    return done.stdout


class Acts(NamedTuple):
    """``make`` and ``remove``: directories; ``tc`` None: there is no such command; ``cookies``:
    core scheduling, which one agent holds for as long as it lives.
    """

    make: Callable[..., None] = os.mkdir
    remove: Callable[..., None] = os.rmdir
    tc: Tc | None = tc if shutil.which("tc") else None
    cookies: CoreCookies | None = None


KERNEL = Acts(cookies=CoreCookies())
