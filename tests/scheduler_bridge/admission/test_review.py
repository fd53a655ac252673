"""What is no review of a pod is told for what it is."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from scheduler_bridge.admission.review import VERSION, question
from scheduler_bridge.http import BadQuestion


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (None, "without a request"),
        ({"uid": "u", "kind": {"kind": "Node"}, "object": {}}, "a review of a Node: only pods"),
        ({"uid": "u", "kind": {"kind": "Pod"}, "object": None}, "a Pod whose object has no spec"),
        ({"uid": "u", "kind": {"kind": "Pod"}, "object": {"spec": 7}}, "has no spec"),
    ],
)
def test_bad_reviews_are_named(request_: Any, says: str) -> None:
    body = orjson.dumps({"apiVersion": VERSION, "kind": "AdmissionReview", "request": request_})
    with pytest.raises(BadQuestion, match=says):
        question(body)
