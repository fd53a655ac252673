"""The file of `slackwater slis`: which PromQL says what of which service, each with its unit.

    services:
      - workload: shop/web              # as inventory names it
        node_label: node                # the label that holds the node's name
        window_ms: 30000                # what the queries look back over
        p99: {query: 'histogram_quantile(0.99, sum by (node, le) (rate(...[30s])))', unit: s}
        requests: {query: 'sum by (node) (rate(...[30s]))', unit: per_s}
        errors: {query: 'sum by (node) (rate(...[30s]))', unit: per_s, missing: zero}

Each query gives one value a node. ``missing: zero`` is for a counter of errors that exists only
once there was one; without it a node of which nothing is said is a gap. ``p50``, ``p90`` and
``p999`` may be asked too, in the form of ``p99``: nobody decides by them, accounts tell of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from schemas.errors import BadPolicy
from schemas.policy.reading import convert, load
from schemas.policy.units import Part
from schemas.slis import DAY_MS, LEAST_WINDOW_MS, WORKLOAD_CHARACTERS

Query = Annotated[str, Meta(min_length=1, max_length=8192)]


class Latency(Part, frozen=True):
    """A percentile of the time that requests took."""

    query: Query
    unit: Literal["s", "ms", "us"]


class Requests(Part, frozen=True):
    """How many requests there were in the window, or a second."""

    query: Query
    unit: Literal["count", "per_s"]


class Errors(Part, frozen=True):
    """How many of them failed; ``ratio``: from 0 to 1 of the requests."""

    query: Query
    unit: Literal["count", "per_s", "ratio"]
    missing: Literal["gap", "zero"] = "gap"


class Service(Part, frozen=True):
    """One service and its queries."""

    workload: Annotated[str, Meta(min_length=1, max_length=WORKLOAD_CHARACTERS)]
    node_label: Annotated[str, Meta(min_length=1, max_length=256)]
    window_ms: Annotated[int, Meta(ge=LEAST_WINDOW_MS, le=DAY_MS)]
    p99: Latency
    requests: Requests
    errors: Errors
    p50: Latency | None = None
    p90: Latency | None = None
    p999: Latency | None = None

    @property
    def more(self) -> dict[str, Latency]:
        """The other percentiles that are asked, by name."""
        asked = {"p50": self.p50, "p90": self.p90, "p999": self.p999}
        return {name: part for name, part in asked.items() if part is not None}


class Queries(Part, frozen=True):
    """The whole file."""

    services: Annotated[tuple[Service, ...], Meta(max_length=256)]


def read(path: Path) -> Queries:
    """The file. Raises BadPolicy naming file, key and what is allowed, OSError when it is away."""
    found: Queries = convert(load(path.read_bytes(), str(path)), Queries, str(path))
    names = [service.workload for service in found.services]
    if not names:
        raise BadPolicy(f"{path}: services is empty; allowed: 1 to 256 services")
    for i, name in enumerate(names):
        if name in names[:i]:
            raise BadPolicy(f"{path}: services[{i}].workload is {name}; allowed: each once")
    return found
