"""This process: who it is, what it may, where it keeps its memory and its keys.

Ask as the user and with the capabilities that the agent will have: that is what is answered.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

from node_agent import authentic
from node_agent.check.finding import Asked, Finding, Question
from node_agent.lock import check
from schemas.keys import BadKeys

CAPABILITIES = {
    "CAP_KILL": (5, "ending another user's processes one by one, where cgroup.kill is not"),
    "CAP_SYS_PTRACE": (19, "network figures of pods"),
    "CAP_SYS_RESOURCE": (24, "pressure triggers: the reflex looks more often"),
    "CAP_PERFMON": (38, "cycles and instructions of groups"),
}
"""What any part of the agent uses, by bit; nothing else is needed (docs/nodes.md)."""
DESCRIPTORS_A_POD = 12
SPARE = 64


def user(asked: Asked) -> Iterator[Finding]:
    """Root, or who owns the best-effort groups."""
    uid = os.geteuid()
    owner = None
    if asked.layout is not None and asked.be_root is not None:
        place = Path(asked.layout.anchor, asked.be_root)
        owner = place.stat().st_uid if place.is_dir() else None
    good = uid in (0, owner)
    found = f"uid {uid}" if good else f"uid {uid}, the best-effort groups are of uid {owner}"
    yield Finding("user", good, found, "writing: run as root or hand the groups over (chown)")


def capabilities(asked: Asked) -> Iterator[Finding]:
    """Those in force; CAP_KILL is essential where there is no other way to evict."""
    held = _effective(Path(f"{asked.base}/proc/self/status"))
    strokes = asked.layout is not None and asked.layout.unified is not None
    for name, (bit, without) in CAPABILITIES.items():
        good = bool(held >> bit & 1)
        yield Finding(
            name, good, "yes" if good else "no", without, name == "CAP_KILL" and not strokes
        )


def descriptors(asked: Asked) -> Iterator[Finding]:
    """Kept files make sampling five to ten times cheaper."""
    del asked
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    endless = hard == resource.RLIM_INFINITY
    pods = 0 if endless else max(0, hard - SPARE) // DESCRIPTORS_A_POD
    found = "no limit" if endless else f"{hard}: enough for about {pods} pods"
    yield Finding("open files", endless or pods >= 100, found, "cheap sampling of that many pods")


def memory(asked: Asked) -> Iterator[Finding]:
    """The state folder: there or makeable, writable, nobody else's."""
    folder = asked.state_dir
    above = next(each for each in (folder, *folder.parents) if each.exists())
    try:
        if above == folder:
            check(folder)
        refused = "" if os.access(above, os.W_OK | os.X_OK) else f"{above} cannot be written"
    except OSError as error:
        refused = str(error)
    made = "" if above == folder else " (will be made)"
    yield Finding(
        "state folder", not refused, refused or f"{folder}{made}", "everything: no way back", True
    )


def keys(asked: Asked) -> Iterator[Finding]:
    """What commands are checked with."""
    if asked.keys is None:
        found = "none: say --keys"
        yield Finding("keys", False, found, "authenticity: whoever may write the topics is obeyed")
        return
    try:
        authentic.load(asked.keys)
    except (BadKeys, OSError) as error:
        yield Finding("keys", False, str(error), "everything: the agent does not start", True)
    else:
        yield Finding("keys", True, str(asked.keys))


def _effective(status: Path) -> int:
    try:
        words = status.read_text("ascii").split()
        return int(words[words.index("CapEff:") + 1], 16)
    except (OSError, ValueError):
        return 0  # it does not say: none can be relied on


QUESTIONS: tuple[Question, ...] = (user, capabilities, descriptors, memory, keys)
