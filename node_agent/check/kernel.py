"""What the kernel was built with and told to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from node_agent.check.finding import Asked, Finding, Question
from node_agent.pressure_triggers import Triggers
from node_agent.signals import cold_memory, perf
from node_agent.signals import resctrl as resctrl_monitoring
from node_agent.signals.base import zone_there

OLDEST = (4, 20)  # pressure; the agent runs on older ones without it


def version(asked: Asked) -> Iterator[Finding]:
    """Which kernel this is."""
    text = _text(f"{asked.base}/proc/sys/kernel/osrelease") or "unknown"
    numbers = tuple(int(n) for n in text.split("-", maxsplit=1)[0].split(".")[:2] if n.isdigit())
    yield Finding("kernel", numbers >= OLDEST, text, "pressure, and what is newer")


def pressure(asked: Asked) -> Iterator[Finding]:
    """Stalls of the machine, of each group, and whether the kernel wakes us."""
    there = bool(_text(f"{asked.base}/proc/pressure/cpu"))
    off = "" if there else "not built or switched off: boot with psi=1"
    without = "interference, the reflex, online pods' own pressure"
    yield Finding("pressure", there, off or "/proc/pressure", without)
    place = None
    if asked.layout is not None and asked.example is not None:
        place = asked.layout.place("psi_cpu", asked.example)
    grouped = place is not None and bool(_text(place.path))
    found = "in the cgroup2 mount" if grouped else "no cgroup2 mount, or switched off"
    yield Finding("pressure of groups", grouped, found, without)
    # Armed and taken away again: of a tree of files that is not this machine's it is not asked.
    askable = asked.layout is not None and there and not asked.base
    triggers = Triggers.open(asked.layout) if asked.layout is not None and askable else None
    if triggers is not None:
        triggers.close()
    found = "500 ms" if triggers is not None else "refused: needs CAP_SYS_RESOURCE"
    yield Finding(
        "pressure triggers", triggers is not None, found, "nothing: the reflex looks more often"
    )


def sources(asked: Asked) -> Iterator[Finding]:
    """Signals that a kernel may lack."""
    for name, there, without in (
        (
            "run-queue wait",
            bool(_text(f"{asked.base}/proc/self/schedstat")),
            "waits of online pods",
        ),
        (
            "hardware counters",
            asked.layout is not None
            and asked.layout.perf_event is not None
            and perf.there(asked.base),
            "cycles per instruction",
        ),
        (
            "resctrl monitoring",
            resctrl_monitoring.there(asked.base),
            "cache occupancy and memory bandwidth",
        ),
        ("NUMA zones", zone_there(0)(asked.base), "figures by zone"),
        ("cold memory", cold_memory.there(asked.base), "cold memory (Anolis kernels have it)"),
    ):
        yield Finding(name, there, "there" if there else "not there", without)


def resctrl(asked: Asked) -> Iterator[Finding]:
    """Whether caches and memory bandwidth can be divided."""
    mount = Path(f"{asked.base}/sys/fs/resctrl")
    mounted = (mount / "schemata").exists()
    found = "mounted" if mounted else "not mounted" if mount.is_dir() else "not built"
    yield Finding("resctrl", mounted, found, "shares of cache and memory bandwidth")


def _text(path: str) -> str:
    try:
        return Path(path).read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


QUESTIONS: tuple[Question, ...] = (version, pressure, sources, resctrl)
