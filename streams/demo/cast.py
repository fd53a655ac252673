"""Who plays in the demo: each process's command line, in one place. Called by `run` and `real`.

Processes of the other shells are started as processes; this shell imports none of them.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from streams import keyring

PARTITIONS = 8  # enough for two workers, and easy on a small machine
PREFIX = "slackwater."
REAL_NODE = "this-node"
INTERVAL_MS = 200
# Who is stopped before whom: the node gives its kernel back while the groups are still there.
BROKER, RECORDER, LOOP, FLEET, NODE = range(5)
# A broker that lives for a minute is better off without the second compiler: a third less CPU.
BROKER_ENV = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}
STOP_S = 15.0  # patience with each
SIMULATED_PODS = 20  # places for pods on a simulated node
POLICY = Path(__file__).with_name("policy.yaml")
# `python -m` of the command's module would need it to be runnable; the console script may be
# elsewhere than this interpreter. So the entry point is called by name.
_SLACKWATER = [sys.executable, "-c", "from streams.cli import main; main()"]


@dataclass(frozen=True, slots=True)
class Cast:
    """Command lines of one run. ``folder``: where its files are; ``brokers`` once known."""

    folder: Path
    brokers: str = ""
    port: int = 0

    @property
    def ready_file(self) -> Path:
        return self.folder / "broker.json"

    @property
    def patches(self) -> Path:
        return self.folder / "patches.jsonl"

    @property
    def state_dir(self) -> Path:
        return self.folder / "node-state"

    @property
    def keys(self) -> Path:
        """The workers' and the simulated fleet's: everything is signed and checked here too."""
        return self.folder / "keys"

    @property
    def node_keys(self) -> Path:
        return self.folder / "keys-of-node"

    def make_keys(self) -> None:
        """Once a folder; a kept one keeps them."""
        if not self.keys.exists():
            keyring.make(self.keys)
        keyring.for_node(self.keys, REAL_NODE, self.node_keys)

    def broker(self) -> list[str]:
        """On the same port and data after an outage."""
        data, log = self.folder / "kafka", self.folder / "kafka.log"
        return [
            *(*_SLACKWATER, "dev-broker", "--data", str(data), "--port", str(self.port)),
            *("--log", str(log), "--ready-file", str(self.ready_file), "--heap", "384m"),
        ]

    def topics(self) -> list[str]:
        return self._command("topics", "create", "--partitions", str(PARTITIONS))

    def policy(self) -> list[str]:
        """The defaults, hurried; see the file."""
        note = ["--force", "--author", "demo", "--note", "hurried for the demo"]
        return [*self._command("policy", "put", str(POLICY)), *note]

    def worker(self, port: int) -> list[str]:
        signed = ["--keys", str(self.keys)]
        return [*self._command("worker", "--metrics-port", str(port)), *signed]

    def fleet(self, port: int) -> list[str]:
        return self._command("fleet", "--metrics-port", str(port))

    def recorder(self, folder: Path) -> list[str]:
        return self._command("record", "--folder", str(folder))

    def bridge(self, port: int) -> list[str]:
        command = self._command("bridge", "run", "--sink", "dry-run", "--quiet")
        return [*command, "--record", str(self.patches), "--metrics-port", str(port)]

    def simulate(self, nodes: int) -> list[str]:
        """One trace minute a second, so that its use moves before one's eyes."""
        shape = ["--nodes", str(nodes), "--pods", str(SIMULATED_PODS), "--speed", "60"]
        return [*self._command("simulate"), *shape, "--keys", str(self.keys), "--json"]

    def node(self, inventory: Path, best_effort_root: str) -> list[str]:
        return [
            *(sys.executable, "-m", "node_agent", "run", *self._where()),
            *("--node", REAL_NODE, "--period", f"{INTERVAL_MS}ms"),
            *("--inventory", str(inventory), "--be-root", best_effort_root),
            *("--state-dir", str(self.state_dir), "--keys", str(self.node_keys)),
        ]

    def workbench(self, name: str) -> list[str]:
        folder = self.folder / "workbench"
        return [
            sys.executable,
            "-m",
            "node_agent.workbench",
            "--name",
            name,
            "--folder",
            str(folder),
        ]

    def _command(self, *words: str) -> list[str]:
        return [*_SLACKWATER, *words, *self._where()]

    def _where(self) -> list[str]:
        return ["--brokers", self.brokers, "--prefix", PREFIX]
