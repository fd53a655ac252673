"""`slackwater admission run` as a process: ready when it knows the cluster, gone when told to."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import aiohttp
from lightkube import AsyncClient

from streams.dev_broker.process import free_port
from tests.kube import objects
from tests.kube.certificates import Authority
from tests.kube.cluster import Cluster
from tests.support import patient

PROGRAM = "from scheduler_bridge.admission.cli import app; app()"


async def test_the_command_answers_and_ends_when_told(
    cluster: Cluster, client: AsyncClient, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "webhook")
    pair = authority.server("admission")
    rules = tmp_path / "rules.yaml"
    rules.write_text("profiles: []\n")
    port = free_port("127.0.0.1")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, "run", "--rules", str(rules),
        "--tls-certificate", str(pair.certificate), "--tls-key", str(pair.key),
        "--host", "127.0.0.1", "--port", str(port), "--lease-namespace", "default",
        "--kubeconfig", str(cluster.kubeconfig()), "--leave-s", "0",
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with aiohttp.ClientSession() as session:

            async def ready() -> bool:
                try:
                    url = f"https://127.0.0.1:{port}/readyz"
                    async with session.get(url, ssl=False) as answer:
                        return answer.status == 200
                except aiohttp.ClientError:
                    return False

            await objects.until(ready, "the webhook is ready", 20.0)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(patient(15.0)):
            _, said = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, said.decode()
    assert b"answering on https://127.0.0.1" in said
