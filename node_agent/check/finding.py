"""What a question of `node_agent.check` is asked with, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from node_agent.cgroup.layout import Layout
from node_agent.cgroup.walk import children


@dataclass(frozen=True, slots=True)
class Finding:
    """``without``: what does not work while this is not good; ``essential``: then nothing does."""

    name: str
    good: bool
    found: str
    without: str = ""
    essential: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """``be_root`` None: this machine has no best-effort root (yet); ``layout`` None: no groups."""

    layout: Layout | None
    be_root: str | None
    state_dir: Path
    keys: Path | None = None
    kubelet_dir: Path = Path("/var/lib/kubelet")
    base: str = ""  # of /proc and /sys

    @property
    def example(self) -> str | None:
        """A group to look at: the best-effort root or any other; a hierarchy's root lacks files."""
        if self.layout is None or self.be_root is not None:
            return self.be_root
        return next((name for name in children(self.layout.anchor) if name.isprintable()), None)


Question = Callable[[Asked], Iterator[Finding]]
