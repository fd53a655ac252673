"""`make bench NAME=extender`: how long the extender's answers take, over HTTP.

Fleets of 1,000 and 5,000 nodes with 50 pods each, reports coming all the while; one scheduler asks
filter and then prioritise for pod after pod, all nodes being candidates, by name. Goals: at 1,000
nodes p99 under 20 ms each, at 5,000 under 50 ms.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp

from tests.bench.common import Goal, finish, median, say
from tests.bench.extender_server import name_of
from tests.scheduler_bridge.extender.world import document

QUESTIONS = 500
WARM = 50
PAUSE_S = 0.005
BOUNDS_MS = {1000: 20.0, 5000: 50.0}
PATHS = ("filter", "prioritize")


@contextmanager
def server(count: int) -> Iterator[tuple[int, int]]:
    """Port and process id of a server of its own process."""
    command = [sys.executable, "-m", "tests.bench.extender_server", str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline()), process.pid
        finally:
            process.terminate()


async def ask(port: int, count: int, questions: int) -> dict[str, list[float]]:
    """Milliseconds from question to whole answer, by path."""
    names = [name_of(i) for i in range(count)]
    took: dict[str, list[float]] = {path: [] for path in PATHS}
    async with aiohttp.ClientSession() as session:
        for i in range(questions + WARM):
            pod = document(f"new-{i}", asks={"cpu": "500m", "memory": "512Mi"})
            body = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names}).encode()
            for path in PATHS:
                began = time.perf_counter()
                async with session.post(f"http://127.0.0.1:{port}/{path}", data=body) as answer:
                    raw = await answer.read()
                if i >= WARM:
                    took[path].append((time.perf_counter() - began) * 1000)
                said = json.loads(raw)
                assert answer.status == 200, said
                assert len(said["NodeNames"] if path == "filter" else said) >= count * 9 // 10
            await asyncio.sleep(PAUSE_S)
    return took


def cpu_ms(pid: int) -> float:
    """CPU time of a process so far, in its own and the kernel's code."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def p99(values: list[float]) -> float:
    return sorted(values)[max(0, len(values) * 99 // 100 - 1)]


def main() -> int:
    figures: dict[str, float | None] = {}
    goals = []
    for count, bound in BOUNDS_MS.items():
        say(f"{count} nodes ...")
        with server(count) as (port, pid):
            before = cpu_ms(pid)
            took = asyncio.run(ask(port, count, QUESTIONS))
            spent = (cpu_ms(pid) - before) / (QUESTIONS + WARM)
        figures[f"server_cpu_{count}_ms_a_pod"] = round(spent, 2)
        say(f"  CPU of the server: {spent:.2f} ms a pod, both answers and reports meanwhile")
        for path, values in took.items():
            name = f"{path}_{count}_p99_ms"
            figures[f"{path}_{count}_p50_ms"] = round(median(values) or 0, 2)
            figures[f"{path}_{count}_most_ms"] = round(max(values), 2)
            goals.append(Goal(name, round(p99(values), 2), bound))
            say(
                f"  {path}: p50 {median(values):.2f}, p99 {p99(values):.2f}, most {max(values):.2f}"
            )
    return finish("extender", figures, goals)


if __name__ == "__main__":
    sys.exit(main())
