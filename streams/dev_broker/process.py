"""Child processes that cannot outlive their parent, and free ports. Used by `DevBroker`."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

# Asks the kernel to kill this process when its parent dies, then becomes the real program.
# The comparison closes the gap between fork and prctl. PR_SET_PDEATHSIG is 1.
_SHIM = (
    "import ctypes,os,sys;"
    "ctypes.CDLL(None).prctl(1,9,0,0,0);"
    "os.getppid()==int(sys.argv[1]) or os._exit(1);"
    "os.execv(sys.argv[2],sys.argv[2:])"
)


class Child:
    """A process of ours with its output in a file; dies with us, even when we are killed with -9.

    A parent-death signal is bound to the *thread* that made the child. So a thread of its own
    starts the child and then waits for it: that thread ends only with the child or with us.
    `lock` is a locked descriptor that the child keeps open, so that the lock ends with the child.
    """

    def __init__(self, command: list[str], log: Path, lock: int) -> None:
        self._ended = threading.Event()
        begun: queue.SimpleQueue[subprocess.Popen[bytes] | OSError] = queue.SimpleQueue()
        threading.Thread(target=self._keep, args=(command, log, lock, begun), daemon=True).start()
        process = begun.get()
        if isinstance(process, OSError):
            raise process
        self._process = process
        self.pid: int = process.pid

    def _keep(
        self,
        command: list[str],
        log: Path,
        lock: int,
        begun: queue.SimpleQueue[subprocess.Popen[bytes] | OSError],
    ) -> None:
        shim = [sys.executable, "-I", "-S", "-c", _SHIM, str(os.getpid()), *command]
        try:
            with log.open("ab") as output:
                # A session of its own: Ctrl-C is for us, and we stop the child in order.
                process = subprocess.Popen(
                    shim,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=(lock,),
                    start_new_session=True,
                )
        except OSError as error:
            begun.put(error)
            return
        begun.put(process)
        process.wait()
        self._ended.set()

    @property
    def running(self) -> bool:
        return not self._ended.is_set()

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end; whether it came in time."""
        return self._ended.wait(timeout_s)

    def signal(self, number: signal.Signals) -> None:
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def stop(self, patience_s: float) -> None:
        """SIGTERM, then SIGKILL when the child has not ended after `patience_s`."""
        self.signal(signal.SIGCONT)  # a stopped process would not see the SIGTERM
        self.signal(signal.SIGTERM)
        if not self.wait(patience_s):
            self.kill()

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait()


def lock_folder(folder: Path, within_s: float) -> int | None:
    """A descriptor that locks a folder until it and all its heirs are closed; None: in use.

    Waits a little, for the child of a parent that was killed just now is about to end.
    """
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    deadline = time.monotonic() + within_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                os.close(descriptor)
                return None
            time.sleep(0.02)
        else:
            return descriptor


def free_port(host: str) -> int:
    """A port nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def port_is_free(host: str, port: int) -> bool:
    """Whether a server could listen there; raises OSError when `host` is not an address of ours."""
    with socket.socket() as probe:
        # As Kafka does: connections of an earlier broker in TIME_WAIT do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise
    return True


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader sees all of it or nothing."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text)
    part.replace(path)
