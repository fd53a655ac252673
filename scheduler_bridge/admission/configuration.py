"""The webhook configurations that make an API server ask us, from one place. Pure.

`slackwater admission configuration` prints them, and tests register the same. Three entries a
webhook, told apart so that an online pod never waits for us for long:

    chosen      pods of namespaces that are marked                      failure: Ignore
    labelled    pods that say a class, in namespaces that are not       failure: Ignore
    borrowers   pods that borrow, in any namespace but the system's     failure: Fail

While we are away no pod borrows, and every other one goes on as if we were not there. About all
other pods we are never asked; of updates about those of a class or a quota only. A pod that borrows
is changed under two entries: the API server asks again only under an entry that it asked before,
and under which the pod still falls.
"""

from __future__ import annotations

from typing import Any

from agents.classes import PRIORITY_LABEL, PRIORITY_RANGES, QOS_LABEL
from agents.eviction.labels import SUB_PRIORITY_LABEL
from scheduler_bridge.admission.names import (
    NAMESPACE_LABEL,
    NAMESPACE_VALUE,
    QUOTA_LABEL,
    SYSTEM_NAMESPACES,
    Resources,
)
from scheduler_bridge.admission.review import VERSION
from scheduler_bridge.admission.webhook import MUTATE_PATH, VALIDATE_PATH

DOMAIN = "admission.slackwater.io"
NAME = "slackwater-admission"
BORROWER_TIMEOUT_S = 5
ONLINE_TIMEOUT_S = 1
"""The longest that an online pod can be held up by a webhook that hangs, twice: once a webhook."""
BORROWING = ("mid", "batch", "free")


def configurations(
    client: dict[str, Any], names: Resources, own_namespace: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(MutatingWebhookConfiguration, ValidatingWebhookConfiguration).

    ``client``: a clientConfig without a path: ``service`` or ``url``, and ``caBundle`` or nothing.
    """
    mutating = [
        {**entry, "reinvocationPolicy": "IfNeeded"}
        for entry in _entries(client, MUTATE_PATH, ["CREATE"], names, own_namespace)
    ]
    validating = _entries(client, VALIDATE_PATH, ["CREATE", "UPDATE"], names, own_namespace)
    return (
        _configuration("MutatingWebhookConfiguration", mutating),
        _configuration("ValidatingWebhookConfiguration", validating),
    )


def _configuration(kind: str, entries: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": NAME},
        "webhooks": entries,
    }


def _entries(
    client: dict[str, Any],
    path: str,
    operations: list[str],
    names: Resources,
    own_namespace: str,
) -> list[dict[str, Any]]:
    marked = {"key": NAMESPACE_LABEL, "operator": "In", "values": [NAMESPACE_VALUE]}
    unmarked = {**marked, "operator": "NotIn"}
    borrows = _either(_borrows("object", names), _old(_borrows("oldObject", names)))
    says = _either(_says_class("object"), _old(_says_class("oldObject")))
    rest = [f"!({borrows})"] if path == VALIDATE_PATH else []
    table: list[tuple[str, str, list[dict[str, Any]], list[str]]] = [
        ("chosen", "Ignore", [marked], rest),
        ("labelled", "Ignore", [unmarked], [says, *rest]),
        ("borrowers", "Fail", [], [borrows]),
    ]
    spaces = sorted({*SYSTEM_NAMESPACES, own_namespace})
    outside = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": spaces}
    return [
        {
            "name": f"{name}.{DOMAIN}",
            "admissionReviewVersions": [VERSION.rpartition("/")[2]],
            "clientConfig": _client(client, path),
            "rules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "resources": ["pods"],
                    "operations": operations,
                    "scope": "Namespaced",
                }
            ],
            "namespaceSelector": {"matchExpressions": [outside, *selector]},
            "matchConditions": [
                {"name": f"{name}-{i}", "expression": expression}
                for i, expression in enumerate([*conditions, _changes_claims()])
            ],
            "matchPolicy": "Equivalent",
            "failurePolicy": failure,
            "timeoutSeconds": BORROWER_TIMEOUT_S if failure == "Fail" else ONLINE_TIMEOUT_S,
            "sideEffects": "NoneOnDryRun",
        }
        for name, failure, selector, conditions in table
    ]


def _client(client: dict[str, Any], path: str) -> dict[str, Any]:
    if "url" in client:
        return {**client, "url": f"{client['url']}{path}"}
    return {**client, "service": {**client["service"], "path": path}}


def _borrows(pod: str, names: Resources) -> str:
    """CEL: by label, by number, or by what containers ask for."""
    low = min(low for low, _, name in PRIORITY_RANGES if name in BORROWING)
    high = max(high for _, high, name in PRIORITY_RANGES if name in BORROWING)
    asks = " || ".join(
        _either(
            f"(has(c.resources.requests) && '{one}' in c.resources.requests)",
            f"(has(c.resources.limits) && '{one}' in c.resources.limits)",
        )
        for one in names.each
    )
    each = f"c, has(c.resources) && ({asks})"
    classes = ", ".join(f"'{one}'" for one in BORROWING)
    return _either(
        _label(pod, QOS_LABEL, "== 'BE'"),
        _label(pod, PRIORITY_LABEL, f"in [{classes}]"),
        f"(has({pod}.spec.priority) && {pod}.spec.priority >= {low} && "
        f"{pod}.spec.priority <= {high})",
        f"{pod}.spec.containers.exists({each})",
        f"(has({pod}.spec.initContainers) && {pod}.spec.initContainers.exists({each}))",
    )


def _says_class(pod: str) -> str:
    each = (QOS_LABEL, PRIORITY_LABEL, SUB_PRIORITY_LABEL)
    some = " || ".join(f"'{one}' in {pod}.metadata.labels" for one in each)
    return f"(has({pod}.metadata.labels) && ({some}))"


def _changes_claims() -> str:
    """CEL: a creation, or an update of a label that pods keep for their life."""
    each = (QOS_LABEL, PRIORITY_LABEL, SUB_PRIORITY_LABEL, QUOTA_LABEL)
    changes = " || ".join(f"{_said('object', one)} != {_said('oldObject', one)}" for one in each)
    return f"request.operation == 'CREATE' || {changes}"


def _said(pod: str, label: str) -> str:
    there = f"has({pod}.metadata.labels) && '{label}' in {pod}.metadata.labels"
    return f"({there} ? {pod}.metadata.labels['{label}'] : '')"


def _label(pod: str, label: str, condition: str) -> str:
    labels = f"{pod}.metadata.labels"
    return f"(has({labels}) && '{label}' in {labels} && {labels}['{label}'] {condition})"


def _old(condition: str) -> str:
    return f"(request.operation == 'UPDATE' && {condition})"


def _either(*conditions: str) -> str:
    return f"({' || '.join(conditions)})"
