"""One development broker: format, start, wait until it answers, stop, kill, pause, restart.

Called by `slackwater dev-broker`, by the demo and by the tests. All methods block; `async with`
runs the slow ones in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from streams.dev_broker import config, jars, probe
from streams.dev_broker.errors import BrokerError
from streams.dev_broker.process import Child, free_port, lock_folder, port_is_free

READY_WITHIN_S = 120.0  # about 3 s on an idle machine
STOP_WITHIN_S = 20.0
LOCK_WITHIN_S = 2.0
POLL_S = 0.05
ATTEMPTS = 3  # a free port may be taken by someone else before Kafka binds it


class _PortTaken(Exception):
    """Someone was faster at a port that had been free."""


class DevBroker:
    """A single-node Kafka. `with DevBroker() as broker:` or `async with`; then `broker.bootstrap`.

    `data`: a folder that is kept and can be started from again; None is a temporary one, removed
    at the end. `port` 0 is any free one; a restart keeps it. `log`: the broker's own log, appended
    to; default `broker.log` in the data folder. `say` gets a line of progress now and then.
    """

    def __init__(
        self,
        data: Path | None = None,
        port: int = 0,
        listen: str = "127.0.0.1",
        heap: str = "512m",
        log: Path | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self._temporary = data is None
        self._data = data
        self._log = log
        self._heap = heap
        self._say = say or (lambda _line: None)
        self._child: Child | None = None
        self._log_from = 0  # where the log of this start begins
        self.listen = listen
        self.port = port

    @property
    def bootstrap(self) -> str:
        """`host:port` for clients; known once started, kept over restarts."""
        return f"{self.listen}:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the Java process."""
        return self._running().pid

    @property
    def data(self) -> Path:
        """The data folder."""
        if self._data is None:
            raise BrokerError("this broker has no data folder before its first start")
        return self._data

    @property
    def log(self) -> Path:
        """The broker's own log."""
        return self._log or self.data / "broker.log"

    @property
    def alive(self) -> bool:
        """Whether the Java process runs (paused counts)."""
        return self._child is not None and self._child.running

    def start(self) -> None:
        """Start and wait until it answers. Raises BrokerError, with nothing left running."""
        if self.alive:
            raise BrokerError(f"this broker already runs on {self.bootstrap}")
        java = jars.find_java()
        if not jars.cache_folder().is_dir():
            self._say(f"fetching Kafka {jars.kafka_version()} (once, about 45 MB)")
        classpath = f"{jars.ensure_jars()}/*"
        asked = self.port
        try:
            if asked and not port_is_free(self.listen, asked):
                raise BrokerError(
                    f"port {asked} of {self.listen} is in use: "
                    "stop what listens there, or choose --port 0 for a free one"
                )
            for attempt in range(1, ATTEMPTS + 1):
                self.port = asked or free_port(self.listen)
                try:
                    self._start_once(java, classpath)
                except _PortTaken as error:
                    if attempt == ATTEMPTS:
                        raise BrokerError(f"ports are taken while Kafka starts: {error}") from error
                else:
                    return
        except BaseException as error:
            self.kill()
            self.port = asked
            if isinstance(error, OSError):
                raise BrokerError(f"cannot start Kafka: {error}") from error
            raise

    def stop(self) -> None:
        """Stop in order; the data stays. Nothing happens when it does not run."""
        if self._child is not None:
            self._child.stop(STOP_WITHIN_S)
            self._child = None

    def kill(self) -> None:
        """End at once (SIGKILL); the data stays as a crash leaves it."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def restart(self) -> None:
        """Start again on the same port and data, after a stop if it still runs."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: connections stay open, nothing answers."""
        self._running().signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._running().signal(signal.SIGCONT)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the Java process to end by itself; whether it did."""
        return self._running().wait(timeout_s)

    def close(self) -> None:
        """Stop, and remove a temporary data folder."""
        self.stop()
        if self._temporary and self._data is not None:
            shutil.rmtree(self._data, ignore_errors=True)
            self._data = None

    def last_error(self) -> str:
        """The last line of the log that tells of an error; "" when there is none."""
        marks = (" ERROR ", " FATAL ", "Error:")
        found = [line for line in self._log_lines() if any(mark in line for mark in marks)]
        return found[-1].strip() if found else ""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.close)

    def _running(self) -> Child:
        if self._child is None:
            raise BrokerError("this broker does not run: call start() first")
        return self._child

    def _log_lines(self) -> list[str]:
        """The lines since this start."""
        with contextlib.suppress(OSError), self.log.open("rb") as log:
            log.seek(self._log_from)
            return log.read().decode(errors="replace").splitlines()
        return []

    def _start_once(self, java: str, classpath: str) -> None:
        """Lay out the data folder, start Java, wait until it answers."""
        if self._data is None:
            self._data = Path(tempfile.mkdtemp(prefix="slackwater-broker-"))
        self._data.mkdir(parents=True, exist_ok=True)
        # Kafka locks its store only after it has begun to read it, so we lock the folder first.
        lock = lock_folder(self._data, LOCK_WITHIN_S)
        if lock is None:
            raise self._in_use()
        try:
            command = [java, *self._lay_out(java, classpath)]
            self._log_from = self.log.stat().st_size if self.log.exists() else 0
            self._child = Child(command, self.log, lock)
        finally:
            os.close(lock)  # the child holds it from now on
        self._await_answer()

    def _lay_out(self, java: str, classpath: str) -> list[str]:
        """Write what Kafka reads, format its store if need be; Java's arguments."""
        folder = self.data.absolute()
        store = folder / "kafka"
        self._format(java, classpath, store)
        properties = folder / "server.properties"
        controller_port = free_port("127.0.0.1")
        properties.write_text(
            config.server_properties(store, self.listen, self.port, controller_port)
        )
        log4j = folder / "log4j2.properties"
        log4j.write_text(config.LOG4J)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        options = [f"-Xmx{self._heap}", "-Xms64m", "-XX:+UseSerialGC", "-Xshare:auto"]
        options += [f"-Dlog4j2.configurationFile={log4j}", "-cp", classpath]
        return [*options, "kafka.Kafka", str(properties)]

    def _in_use(self) -> BrokerError:
        return BrokerError(f"another broker uses {self.data}: stop it, or choose another --data")

    def _format(self, java: str, classpath: str, store: Path) -> None:
        """Make a formatted store, unless there is one. In a folder beside it, then renamed."""
        if (store / "meta.properties").is_file():
            return
        if store.exists():
            raise BrokerError(
                f"{store} is there but was never formatted for Kafka (no meta.properties): "
                "remove it, or choose another --data"
            )
        fresh = Path(tempfile.mkdtemp(prefix=".format-", dir=store.parent))
        try:
            properties = fresh / "server.properties"
            properties.write_text(config.server_properties(fresh / "kafka", self.listen, 1, 2))
            cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            command = [java, "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", classpath]
            command += ["kafka.tools.StorageTool", "format", "-t", cluster.replace("-", "x")]
            command += ["-c", str(properties), "--ignore-formatted"]
            answer = subprocess.run(command, capture_output=True, text=True, check=False)
            if answer.returncode != 0:
                why = (answer.stderr + answer.stdout).strip().splitlines()[-1:]
                raise BrokerError(f"Kafka cannot format {store}: {''.join(why)}")
            (fresh / "kafka").rename(store)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)

    def _await_answer(self) -> None:
        child = self._running()
        deadline = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < deadline:
            if probe.accepts(self.listen, self.port) and probe.answers(self.bootstrap):
                return
            if child.wait(POLL_S):
                raise self._why_it_ended(child)
        raise BrokerError(f"Kafka does not answer after {READY_WITHIN_S:.0f} s: see {self.log}")

    def _why_it_ended(self, child: Child) -> Exception:
        """What a broker that ended while starting died of, with what to do."""
        said = "\n".join(self._log_lines())
        if "Address already in use" in said or "BindException" in said:
            return _PortTaken(self.bootstrap)
        if "Failed to acquire lock on file" in said:
            return self._in_use()
        if "Invalid maximum heap size" in said or "Could not reserve enough space" in said:
            return BrokerError(f"Java refuses --heap {self._heap}: give a size such as 512m")
        why = self.last_error() or f"exit code {child.exit_code}"
        return BrokerError(
            f"Kafka ended while starting ({why}); see {self.log}. "
            f"If its data is damaged, remove {self.data} or choose another --data"
        )
