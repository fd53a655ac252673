"""A real node agent without Kafka, as after a broker was lost: last good policy, last ceiling.

The benches `reflex` and `eviction` and the tests beside them start it on groups of their own. The
broker's address is a port at which nobody listens; policy and ceiling lie in the state folder, as
an agent that had both leaves them there.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from node_agent.cgroup.files import FILES
from node_agent.cli import KERNEL_BOOT
from node_agent.journal import NAME, Journal
from node_agent.local_law import PolicyShelf
from node_agent.signals import best_effort, cpu_usage
from node_agent.workbench.bystanders import Bystanders
from node_agent.workbench.groups import Groups
from schemas.policy import digest, parse
from schemas.records import PolicyRecord
from tests.bench.node_agent import free_port, scrape
from tests.support import patient

NODE = "lone"
READY_S, STOP_S = 30.0, 15.0


class Lone:
    """One agent in a process of its own, and what the kernel and its journal say of it."""

    def __init__(self, groups: Groups, folder: Path, policy: str, *options: str) -> None:
        """``folder``: empty, for state, inventory and log; ``options``: more words of `run`."""
        self.groups, self.folder = groups, folder
        self.state = folder / "state"
        self.inventory = folder / "inventory.yaml"
        self.port = free_port()
        self._leave_behind(policy)
        self._words = [sys.executable, "-m", "node_agent", "run"]
        for name, value in {
            "--node": NODE,
            "--brokers": f"127.0.0.1:{free_port()}",
            "--period": "1s",
            "--inventory": str(self.inventory),
            "--state-dir": str(self.state),
            "--metrics-port": str(self.port),
        }.items():
            self._words += [name, value]
        self._words += options
        self._process: subprocess.Popen[bytes] | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """From start to SIGTERM; an agent that fails is shown with its log."""
        log_path = self.folder / "agent.log"
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(self._words, stderr=log)
        bystanders = Bystanders(self.groups)
        bystanders.place("node", [self._process.pid])
        try:
            until(lambda: self.metric("samples_total") >= 1, "the agent's first sample", READY_S)
            yield
        except BaseException:
            sys.stderr.write(log_path.read_text(errors="replace")[-4000:])
            raise
        finally:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(patient(STOP_S))
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(patient(STOP_S))
            bystanders.release()

    @property
    def pid(self) -> int:
        assert self._process is not None, "it runs"
        return self._process.pid

    def metric(self, name: str) -> float:
        """A metric without labels; 0 while it does not answer."""
        assert self._process is not None and self._process.poll() is None, "the agent ended"
        return scrape(self.port).get(name, 0.0)

    def lines(self) -> list[dict[str, Any]]:
        """Its journal so far."""
        raw = (self.state / NAME).read_bytes()
        return [orjson.loads(line) for line in raw[: raw.rfind(b"\n") + 1].splitlines()]

    def cpu_us(self) -> int:
        """CPU time of all its threads."""
        tasks = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(each.read_text("ascii").split()[0]) for each in tasks) // 1000

    def quota_milli(self) -> int:
        """The bound in force at the best-effort root; -1: none."""
        directory = self.groups.directory("cpu", self.groups.be_root)
        row = FILES["cpu_quota"]
        if self.groups.layout.versions()["cpu"] == 1:
            period = (directory / str(FILES["cpu_period"].v1)).read_bytes()
            found = best_effort.parse_quota_v1((directory / str(row.v1)).read_bytes(), period)
        else:
            found = best_effort.parse_quota_v2((directory / str(row.v2)).read_bytes())
        assert found[0] is not None
        return found[0]

    def _leave_behind(self, text: str) -> None:
        """The state of an agent that heard this policy and was granted every CPU."""
        self.state.mkdir(parents=True)
        policy = parse(text, "bench")
        record = PolicyRecord(policy.name, 1, digest(policy), text)
        PolicyShelf(self.state / "policies.json").keep(policy.name.encode(), record)
        kernel_boot = KERNEL_BOOT.read_text("ascii").strip().replace("-", "")
        granted = 1000 * (os.cpu_count() or 1)
        journal = Journal(self.state, kernel_boot)
        journal.boot("0" * 32, 0)
        journal.append({"kind": "in_force", "in_force_milli": granted, "granted_milli": granted})
        journal.close()


def usage_us(groups: Groups, path: str) -> int:
    """CPU time of a group and all under it; of the whole machine for an empty path."""
    row = FILES["cpu_usage"]
    hierarchy = groups.layout.controllers["cpuacct"]
    directory = Path(hierarchy.mount, path)
    if hierarchy.version == 1:
        used_us = cpu_usage.parse_v1((directory / str(row.v1)).read_bytes())[0]
    else:
        used_us = cpu_usage.parse_v2((directory / str(row.v2)).read_bytes())[0]
    assert used_us is not None
    return used_us


class Others:
    """CPU that neither the groups nor this process used, in millicores since the last question."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._at_ns, self._used_us = time.monotonic_ns(), self._theirs_us()

    def milli(self) -> int:
        """Since the last question, or since it was made."""
        at_ns, used_us = time.monotonic_ns(), self._theirs_us()
        milli = (used_us - self._used_us) * 1_000_000 // max(at_ns - self._at_ns, 1)
        self._at_ns, self._used_us = at_ns, used_us
        return milli

    def _theirs_us(self) -> int:
        own_us = time.process_time_ns() // 1000
        return usage_us(self._groups, "") - usage_us(self._groups, self._groups.name) - own_us


def until(condition: Callable[[], bool], what: str, seconds: float, step_s: float = 0.02) -> float:
    """Wait; the seconds it took. Raises TimeoutError that says what did not come."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > patient(seconds):
            raise TimeoutError(f"not within {patient(seconds):.0f} s: {what}")
        time.sleep(step_s)
    return time.monotonic() - began
