"""All that a report says, as data: what `--json` prints and what the page draws.

Times are log time (broker append time), milliseconds since 1970; CPU in cores, memory in GiB and
shares in percent, rounded, because people read them. Series hold one value a time, null: unknown.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

FORMAT = 1
"""Raised by a change that an older reader would misunderstand."""
Kind = Literal["policy", "slis", "lending", "eviction", "suspect", "pressure", "what_if", "damage"]
Series = list[float | None]


class About(msgspec.Struct, frozen=True):
    """Where it comes from."""

    source: str
    software: str
    from_ms: int
    to_ms: int
    nodes: int
    partitions: int
    law_versions: tuple[int, ...]
    pseudonymised: bool
    problems: tuple[str, ...]  # what of the recording could not be used


class Finding(msgspec.Struct, frozen=True):
    """One plain sentence; the node and the time that it is about, to be shown on a click."""

    kind: Kind
    text: str
    node: str = ""
    from_ms: int = -1
    to_ms: int = -1
    grave: bool = False


class Change(msgspec.Struct, frozen=True):
    """A policy that was published; ``changes``: key, old value, new value."""

    log_ms: int
    name: str
    version: int
    digest: str
    author: str
    note: str
    changes: tuple[tuple[str, str, str], ...]

    @property
    def what(self) -> str:
        """The changed keys in words."""
        return ", ".join(f"{key} {old} -> {new}" for key, old, new in self.changes)


class Service(msgspec.Struct, frozen=True):
    """One that measures itself, and what it is held against."""

    workload: str
    p99_ms: float  # at most; 0: not judged
    errors_permille: int  # at most; 1000: not judged
    yardstick: str  # where the two come from
    beyond_s: float  # in all, over all nodes
    worst_p99_ms: float
    nodes_beyond: tuple[str, ...]
    from_ms: int  # first report beyond; -1: none
    to_ms: int


class Fleet(msgspec.Struct, frozen=True):
    """All nodes over time; ``times_s``: ends of steps."""

    times_s: Series
    series: dict[str, Series]
    p99_ms: dict[str, Series]  # workload -> worst node
    nodes_beyond: Series


class Node(msgspec.Struct, frozen=True):
    """One node in a line; ``detail``: whether its timelines are there."""

    node: str
    cores: float
    beyond_s: float
    evictions: int
    ill_s: float
    online_cores: float  # means over the whole recording
    best_effort_cores: float
    peak_percent: float
    detail: bool


class Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    """A decision that opens its explanation."""

    log_ms: int
    lane: str
    reason: str
    text: str
    short: str = ""
    terms: dict[str, int] = {}
    policy: str = ""  # digest
    version: int = -1
    cause: str = ""
    command: str = ""


class Detail(msgspec.Struct, frozen=True):
    """One node over time. ``left_out``: marks that did not fit, by lane."""

    times_s: list[float]
    series: dict[str, Series]
    p99_ms: dict[str, Series]
    errors_permille: dict[str, Series]
    marks: tuple[Mark, ...]
    left_out: dict[str, int]


class Pod(msgspec.Struct, frozen=True):
    """One pod in a line. ``beyond_cores``: mean while a service of its node suffered."""

    node: str
    pod: str
    workload: str
    qos: str
    priority_class: str
    request_cores: float
    mean_cores: float
    peak_cores: float
    beyond_cores: float | None
    peak_gib: float
    pressure_percent: float | None
    evicted: bool


class Suspect(msgspec.Struct, frozen=True):
    """Best-effort work that was busy when services suffered; see `streams.report.suspects`."""

    node: str
    pod: str
    workload: str
    score: float
    share_percent: float
    correlation: float
    beyond_cores: float
    calm_cores: float


class Report(msgspec.Struct, frozen=True):
    """The whole."""

    about: About
    findings: tuple[Finding, ...]
    policies: tuple[Change, ...]
    services: tuple[Service, ...]
    fleet: Fleet
    nodes: tuple[Node, ...]
    details: dict[str, Detail]
    pods: tuple[Pod, ...]
    suspects: tuple[Suspect, ...]
    rules: dict[str, str]  # lane -> the rule behind it
    what_if: dict[str, Any] | None = None
    format: int = FORMAT
