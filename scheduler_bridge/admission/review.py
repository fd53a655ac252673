"""AdmissionReview (admission.k8s.io/v1), from bytes and to bytes. Called by `webhook`."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import orjson

from scheduler_bridge.admission.patch import Operation
from scheduler_bridge.http import BadQuestion

VERSION = "admission.k8s.io/v1"
FORBIDDEN = 403
WARNING_CHARACTERS = 120
"""The API server cuts longer ones."""


@dataclass(frozen=True, slots=True)
class Question:
    """The request of a review; ``old`` is None at a creation."""

    uid: str
    operation: str
    namespace: str
    pod: dict[str, Any]
    old: dict[str, Any] | None
    dry_run: bool


def question(body: bytes) -> Question:
    """Raises BadQuestion for what is no review of a pod."""
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadQuestion(f"not JSON: {error}") from None
    if not isinstance(said, dict) or said.get("apiVersion") != VERSION:
        raise BadQuestion(f"no AdmissionReview of {VERSION}: name that in admissionReviewVersions")
    request = said.get("request")
    if not isinstance(request, dict) or not isinstance(request.get("uid"), str):
        raise BadQuestion("an AdmissionReview without a request")
    kind = request.get("kind") or {}
    pod = request.get("object")
    if kind.get("kind") != "Pod":
        raise BadQuestion(f"a review of a {kind.get('kind')}: only pods are judged here")
    if not isinstance(pod, dict) or not isinstance(pod.get("spec"), dict):
        raise BadQuestion("a review of a Pod whose object has no spec")
    old = request.get("oldObject")
    return Question(
        uid=request["uid"],
        operation=request.get("operation", ""),
        namespace=request.get("namespace") or "",
        pod=pod,
        old=old if isinstance(old, dict) else None,
        dry_run=request.get("dryRun") is True,
    )


def allowed(
    asked: Question,
    patch: list[Operation] | None = None,
    warnings: list[str] | None = None,
    notes: dict[str, str] | None = None,
) -> bytes:
    """Yes, with a patch if there is one; ``notes`` go to the audit log."""
    response: dict[str, Any] = {"uid": asked.uid, "allowed": True}
    if patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(orjson.dumps(patch)).decode()
    if warnings:
        response["warnings"] = [one[:WARNING_CHARACTERS] for one in warnings]
    if notes:
        response["auditAnnotations"] = notes
    return _review(response)


def refused(asked: Question, complaints: list[str]) -> bytes:
    """No, with everything that is wrong."""
    status = {"code": FORBIDDEN, "reason": "Forbidden", "message": "; ".join(complaints)}
    return _review({"uid": asked.uid, "allowed": False, "status": status})


def _review(response: dict[str, Any]) -> bytes:
    return orjson.dumps({"apiVersion": VERSION, "kind": "AdmissionReview", "response": response})
