"""`make bench NAME=webhook`: how long the webhook's answers take, over HTTPS.

A cluster of 1,000 nodes and 20,000 pods that keep changing, 110 quotas of two levels, 20 profiles.
Asked are creations of a pod that a profile makes batch work (mutate) and of what it became
(validate: claims, gang, quota), one after the other and by eight at once. Goal: p99 under 10 ms
each, one after the other; for eight at once the figures are told.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from scheduler_bridge.admission.review import VERSION
from tests.bench.common import Goal, finish, median, say
from tests.kube.certificates import Authority

QUESTIONS = 3000
WARM = 200
PAUSE_S = 0.002
AT_ONCE = 8
BOUND_MS = 10.0
WEBHOOKS = ("mutate", "validate")
Took = dict[str, list[float]]


@contextmanager
def server() -> Iterator[tuple[int, ssl.SSLContext]]:
    """Port and trust of a server of its own process."""
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(Path(folder) / "pki")
        pair = authority.server("webhook")
        module = "tests.bench.webhook_server"
        command = [sys.executable, "-m", module, str(pair.certificate), str(pair.key)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                port = int(process.stdout.readline())
                yield port, ssl.create_default_context(cafile=str(authority.certificate))
            finally:
                process.terminate()


def review(i: int, which: str, *, dry_run: bool) -> bytes:
    """A creation as the API server asks about it: before our change, or after it."""
    labels = {"app": "app7", "quota.scheduling.koordinator.sh/name": f"team{i % 100}"}
    names = ("cpu", "memory")
    if which == "validate":
        labels |= {"koordinator.sh/qosClass": "BE", "koordinator.sh/priority-class": "batch"}
        names = ("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory")
    asks = dict(zip(names, ("2000", "4294967296"), strict=True))
    pod = {
        "metadata": {
            "name": f"new-{i}", "namespace": "bench", "uid": f"new-{i}", "labels": labels,
            "annotations": {"slackwater.io/recoverable": "true"},
        },
        "spec": {
            "containers": [{"name": "main", "image": "x", "env": [{"name": "a", "value": "b"}] * 20,
                            "resources": {"requests": asks, "limits": asks}}],
        },
    }  # fmt: skip
    request = {
        "uid": f"review-{i}", "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "operation": "CREATE", "namespace": "bench", "object": pod, "oldObject": None,
        "dryRun": dry_run,
    }  # fmt: skip
    document = {"apiVersion": VERSION, "kind": "AdmissionReview", "request": request}
    return json.dumps(document).encode()


async def ask(session: aiohttp.ClientSession, base: str, numbers: range, pause_s: float) -> Took:
    """Milliseconds from question to whole answer, by webhook."""
    took: Took = {which: [] for which in WEBHOOKS}
    for i in numbers:
        for which in WEBHOOKS:
            body = review(i, which, dry_run=i % 2 == 0)
            began = time.perf_counter()
            async with session.post(f"{base}/{which}", data=body) as answer:
                raw = await answer.read()
            took[which].append((time.perf_counter() - began) * 1000)
            said: dict[str, Any] = json.loads(raw)["response"]
            assert said["allowed"], said
            assert ("patch" in said) == (which == "mutate"), said
        await asyncio.sleep(pause_s)
    return took


async def measure(port: int, trust: ssl.SSLContext) -> tuple[Took, Took]:
    """(one after the other, eight at once)."""
    base = f"https://localhost:{port}"
    connector = aiohttp.TCPConnector(ssl=trust, limit=AT_ONCE)
    async with aiohttp.ClientSession(connector=connector) as session:
        await ask(session, base, range(WARM), 0)
        alone = await ask(session, base, range(WARM, WARM + QUESTIONS), PAUSE_S)
        begin, each = WARM + QUESTIONS, QUESTIONS // AT_ONCE
        parts = await asyncio.gather(*(
            ask(session, base, range(begin + k * each, begin + (k + 1) * each), 0)
            for k in range(AT_ONCE)
        ))  # fmt: skip
    return alone, {which: [ms for part in parts for ms in part[which]] for which in WEBHOOKS}


def p99(values: list[float]) -> float:
    return sorted(values)[max(0, len(values) * 99 // 100 - 1)]


def main() -> int:
    figures: dict[str, float | None] = {}
    goals = []
    with server() as (port, trust):
        alone, crowd = asyncio.run(measure(port, trust))
    for which in WEBHOOKS:
        one, many = alone[which], crowd[which]
        figures[f"{which}_p50_ms"] = round(median(one) or 0, 2)
        figures[f"{which}_most_ms"] = round(max(one), 2)
        figures[f"{which}_of_{AT_ONCE}_p99_ms"] = round(p99(many), 2)
        goals.append(Goal(f"{which}_p99_ms", round(p99(one), 2), BOUND_MS))
        say(f"{which}: p50 {median(one):.2f}, p99 {p99(one):.2f}, most {max(one):.2f}; "
            f"{AT_ONCE} at once: p99 {p99(many):.2f}")  # fmt: skip
    return finish("webhook", figures, goals)


if __name__ == "__main__":
    sys.exit(main())
