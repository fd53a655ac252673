"""Values of a service's queries into one SLI a node. Pure; called by `streams.slis_cli`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import isnan
from typing import Any

from schemas.errors import BadRecord
from schemas.names import NODE_NAME
from schemas.records import Sli
from schemas.slis import check
from streams.slis_queries import Service

US = {"s": 1_000_000, "ms": 1_000, "us": 1}
MS_PER_S = 1000
MOST = 1e15
"""More than anybody counts or waits in any unit; beyond it the sums would not be integers."""
Values = Mapping[str, float]
"""By node."""


class Refused(Exception):
    """What is said of one node cannot be used; the message says why."""


def slis_of(
    service: Service, p99: Values, requests: Values, errors: Values, end_ms: int,
    more: Mapping[str, Values] | None = None,
) -> tuple[list[Sli], list[str]]:  # fmt: skip
    """Records by node, and what was wrong with the nodes that are left out.

    ``more``: other percentiles by name; one that says nothing of a node is not measured there.
    """
    found, wrong = [], []
    for node in sorted(p99.keys() | requests.keys()):
        try:
            said = _of_node(service, node, (p99, requests, errors), end_ms)
            said = replace(said, **_more(service, node, more or {}))
            check(said, end_ms)
            found.append(said)
        except (Refused, BadRecord) as error:
            wrong.append(f"{service.workload} on {node:.80}: {error}")
    return found, wrong


def _of_node(
    service: Service, node: str, values: tuple[Values, Values, Values], end_ms: int
) -> Sli:
    if not NODE_NAME.fullmatch(node):
        raise Refused(f"label {service.node_label} holds no name of a node")
    p99, requests, errors = values
    asked = _amount(service.requests.unit, requests.get(node), service.window_ms, "requests")
    failed = errors.get(node)
    if failed is None and service.errors.missing == "zero":
        failed = 0.0
    if service.errors.unit == "ratio":
        wrong = round(_number(failed, "errors") * asked)
    else:
        wrong = _amount(service.errors.unit, failed, service.window_ms, "errors")
    slow = p99.get(node)
    if asked == 0 and (slow is None or isnan(slow)):
        slow = 0.0  # nobody asked, so nobody waited
    slow_us = round(_number(slow, "p99") * US[service.p99.unit])
    return Sli(service.workload, node, service.window_ms, 0, slow_us, asked, wrong, end_ms)


def _more(service: Service, node: str, more: Mapping[str, Values]) -> dict[str, Any]:
    """Fields of the other percentiles; what is no number was not measured."""
    found: dict[str, Any] = {}
    for name, values in more.items():
        value = values.get(node)
        if value is not None and not isnan(value):
            found[f"{name}_us"] = round(_number(value, name) * US[service.more[name].unit])
    return found


def _amount(unit: str, value: float | None, window_ms: int, what: str) -> int:
    """Events in the window."""
    number = _number(value, what)
    return round(number * window_ms / MS_PER_S if unit == "per_s" else number)


def _number(value: float | None, what: str) -> float:
    if value is None:
        raise Refused(f"{what} says nothing of it")
    if not 0 <= value <= MOST:
        raise Refused(f"{what} is {value:g}; allowed: numbers from 0 to {MOST:g}")
    return value
