"""A process as a careful container runs it: few capabilities, a read-only view, one writable group.

The best-effort root is mounted over itself, writable, in hierarchies that are read-only; so is the
state folder in a read-only root. Needs root, `unshare` and `setpriv` (util-linux).
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support import unavailable

needs_util_linux = pytest.mark.only_outside("needs util-linux: setpriv, unshare")

_SCRIPT = """
set -eu
root=$1 state=$2; shift 2
mount --make-rprivate /
mount --bind "$state" "$state"
mounts=$(cat /proc/self/mountinfo)  # as it is before the new ones
printf '%s\\n' "$mounts" | while read -r _ _ _ _ at rest; do
    case "$rest" in *" - cgroup"*)
        if [ -d "$at/$root" ]; then mount --bind "$at/$root" "$at/$root"; fi
        mount -o remount,ro,bind "$at" ;;
    esac
done
mount --bind / /
mount -o remount,ro,bind /
exec "$@"
"""


def jailed(
    be_root: str, state: Path, command: Sequence[str], *, capabilities: str = "", uid: int = 0
) -> list[str]:
    """``command`` in the jail; ``capabilities``: such as ``kill``, with commas, and no others."""
    for tool in ("unshare", "setpriv"):
        if shutil.which(tool) is None:
            unavailable(f"no {tool}: a process cannot be made less privileged here")
    held = ",".join(["-all", *(f"+{each}" for each in capabilities.split(",") if each)])
    privileges = [
        *("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--no-new-privs"),
        *(f"--inh-caps={held}", f"--bounding-set={held}"),
    ]
    enter = ["unshare", "--mount", "sh", "-c", _SCRIPT, "sh", be_root, str(state)]
    return [*enter, *privileges, *command]
