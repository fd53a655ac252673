"""What is said of an API server that does not answer: who it was, what to do, and how often."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path

import httpx2
import pytest
from lightkube.resources.core_v1 import Node

from scheduler_bridge.kube.errors import KubeUnreachable, translated
from scheduler_bridge.kube.mirror import Mirror
from tests.scheduler_bridge.kube.test_client import facing, get, status
from tests.support import patient


async def test_who_does_not_answer_is_named(tmp_path: Path) -> None:
    async with facing(tmp_path, b"") as (kube, _):
        with pytest.raises(KubeUnreachable, match=r"no answer of http://127\.0\.0\.1:[0-9]+ \("):
            await get(kube)


def test_a_certificate_that_nobody_signed_says_what_to_look_at() -> None:
    error = httpx2.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")
    with (
        pytest.raises(KubeUnreachable, match="check the certificate-authority"),
        translated("read a node"),
    ):
        raise error


async def test_one_complaint_is_not_said_at_every_try(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "slackwater.bridge")
    async with facing(tmp_path, status(403, "no rights")) as (kube, asked):
        task = asyncio.create_task(Mirror(kube, Node, lambda node: node).run())
        async with asyncio.timeout(patient(10)):
            while len(asked) < 4:  # noqa: ASYNC110 - tries of the mirror's own
                await asyncio.sleep(0.01)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    (said,) = caplog.messages
    assert said.startswith("GET /api/v1/nodes: 403 no rights (")
    assert said.endswith("; going on")
