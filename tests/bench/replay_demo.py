"""`make bench NAME=replay_demo`: a live run recorded, a worker killed, all of it decided again.

Who plays in the demo plays here: broker, two workers, second stage, bridge, simulated fleet, and
the recorder. In the middle one worker is killed with SIGKILL, a little later another joins. Then
the recording is replayed on a clean clone of this repository, and folded twice more: cut into
other batches, and with another numpy.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from streams.demo import cast
from streams.demo.cast import Cast
from streams.demo.probe import free_port, lags, ready
from streams.demo.supervisor import Child, Supervisor
from tests.bench.common import Goal, finish, say
from tests.determinism.test_same_bytes import OTHER_NUMPYS, other_numpy

ROOT = Path(__file__).parents[2]
START_S = 180.0
JOINS_AFTER_S = 10.0
STARTS = "from streams.replay.cli import app; app()"


class Stage:
    """The processes of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.recording = folder, folder / "recording"
        self.cast = Cast(folder)
        self.supervisor = Supervisor(folder, f"replay-demo-{os.getpid()}")
        self._workers = 0

    async def open(self, nodes: int) -> tuple[Child, int]:
        """All of it, running; the first worker and its port."""
        self.cast.make_keys()
        broker = self._start("broker", self.cast.broker(), cast.BROKER)
        await self.supervisor.until("an answer", self.cast.ready_file.exists, START_S, broker)
        brokers = str(json.loads(self.cast.ready_file.read_text())["bootstrap"])
        self.cast = Cast(self.folder, brokers, int(brokers.rsplit(":", 1)[1]))
        for name, command in (("topics", self.cast.topics()), ("policy", self.cast.policy())):
            await self.supervisor.finish(self.supervisor.start(name, command), START_S)
        self._start("record", self.cast.recorder(self.recording), cast.RECORDER)
        self._start("fleet", self.cast.fleet(free_port()), cast.LOOP)
        self._start("bridge", self.cast.bridge(free_port()), cast.LOOP)
        first = await self.worker()
        await self.worker()
        self._start("simulate", self.cast.simulate(nodes), cast.FLEET)
        return first

    async def worker(self) -> tuple[Child, int]:
        """One more worker, ready."""
        self._workers += 1
        port = free_port()
        child = self._start(f"worker-{self._workers}", self.cast.worker(port), cast.LOOP)
        await self.supervisor.until("readiness", partial(ready, port), START_S, child)
        return child, port

    def _start(self, name: str, command: list[str], rank: int) -> Child:
        env = cast.BROKER_ENV if rank == cast.BROKER else None
        return self.supervisor.start(name, command, patience_s=60.0, rank=rank, env=env)


async def live(folder: Path, seconds: float, nodes: int) -> tuple[Path, dict[str, Any]]:
    """Play; the recording, and what happened to the workers."""
    stage = Stage(folder)
    try:
        first, port = await stage.open(nodes)
        say(f"it turns; {seconds:.0f} s begin")
        await asyncio.sleep(seconds / 2)
        had = len(await lags(port))
        stage.supervisor.kill(first)
        say(f"worker-1 is killed; it had {had} partitions")
        await asyncio.sleep(JOINS_AFTER_S)
        _, joined = await stage.worker()
        await asyncio.sleep(max(seconds / 2 - JOINS_AFTER_S, 0))
        has = len(await lags(joined))
        say(f"worker-3 joined and has {has} partitions")
        await stage.supervisor.stop_all()
    finally:
        stage.supervisor.kill_all()
    return stage.recording, {"killed_had_partitions": had, "joined_has_partitions": has}


def cloned(folder: Path) -> Path:
    """A clean clone of what is committed."""
    subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True)
    return folder


def replay(clone: Path, recording: Path) -> tuple[int, dict[str, Any], float]:
    """`slackwater replay` there: its exit code, its document, its seconds."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", STARTS, str(recording), "--json"],
        cwd=clone, env={**os.environ, "PYTHONPATH": str(clone)}, stdout=subprocess.PIPE,
        check=False,
    )  # fmt: skip
    return done.returncode, orjson.loads(done.stdout or b"{}"), time.monotonic() - began


def again(clone: Path, recording: Path, batch: int, numpy: str) -> dict[str, Any]:
    """Folded once more in its own process, so cut and with that numpy."""
    places = [str(clone)] if numpy == np.__version__ else [str(other_numpy(numpy)), str(clone)]
    done = subprocess.run(
        [
            sys.executable, "-m", "tests.determinism.golden", "replay", str(recording),
            "--batch", str(batch),
        ],
        cwd=clone, env={**os.environ, "PYTHONPATH": os.pathsep.join(places)}, check=True,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    said: dict[str, Any] = orjson.loads(done.stdout)
    say(f"batches of {batch}, numpy {said['numpy']}: {said['verdict']}, {said['digest_now']}")
    return said


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=600.0)
    options.add_argument("--nodes", type=int, default=50)
    options.add_argument("--keep", type=Path, default=None, help="Keep recording and logs there.")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = (chosen.keep or Path(scratch) / "run").resolve()
        folder.mkdir(parents=True, exist_ok=True)
        recording, happened = asyncio.run(live(folder, chosen.seconds, chosen.nodes))
        clone = cloned(Path(scratch) / "clone")
        code, said, took_s = replay(clone, recording)
        say(f"replay: exit {code}, {said.get('verdict')}, {took_s:.1f} s")
        if said.get("first_difference"):
            say(orjson.dumps(said["first_difference"], option=orjson.OPT_INDENT_2).decode()[:3000])
        other = next(each for each in OTHER_NUMPYS if each != np.__version__)
        more = [again(clone, recording, 777, np.__version__), again(clone, recording, 97, other)]
    digests = {said["digest_then"], said["digest_now"], *(each["digest_now"] for each in more)}
    kept = (
        "records", "then", "now", "equal", "differing", "only_then", "only_now", "said_otherwise",
        "repeated", "withheld", "beyond", "span_s", "digest_now",
    )  # fmt: skip
    figures = {
        "verdict": said["verdict"],
        **{name: said[name] for name in kept},
        **happened,
        "replay_s": round(took_s, 1),
        "numpys": sorted({np.__version__, *(each["numpy"] for each in more)}),
        "partitions_ended_early": sum(bool(each["ended"]) for each in said["partitions"]),
    }
    goals = [
        Goal("exit_code", code, 0),
        Goal("outputs_equal_percent", 100 * said["equal"] / max(said["then"], 1), 100, "at_least"),
        Goal("different_digests", len(digests), 1),
        Goal("killed_had_partitions", happened["killed_had_partitions"], 1, "at_least"),
        Goal("joined_has_partitions", happened["joined_has_partitions"], 1, "at_least"),
    ]
    return finish("replay_demo", figures, goals)


if __name__ == "__main__":
    sys.exit(main())
