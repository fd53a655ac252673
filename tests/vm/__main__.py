"""`python -m tests.vm [TEST...]`: the kernel tests of the node agent on a pure cgroup v2 machine.

    --kernel linux-image-6.12-cloud-amd64   another of Debian's kernels than the release's own
    --within 1800   seconds until the machine is taken for hung
    --silent 300    the same, without a line on its console

Without arguments: every test marked `kernel`. The exit code is pytest's there, and 1 when a test
neither passed nor is marked as another kernel's.
"""

from __future__ import annotations

import argparse
import fcntl
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from xml.etree.ElementTree import ParseError

from streams.dev_broker import BrokerError, DevBroker
from tests.support import BROKER_VARIABLE, SLOWNESS_VARIABLE
from tests.vm import debian, image, machine, tally
from tests.vm.debian import MachineError

CACHE = image.REPO / ".cache" / "vm"
TESTS = ("tests/node_agent",)
SLOWNESS = 8
"""Software emulation runs Python so many times slower; time limits of tests grow by it."""


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--kernel", default=debian.NEWEST, help="a kernel package of Debian's")
    parser.add_argument("--within", type=float, default=1800.0, help="seconds for the whole run")
    parser.add_argument("--silent", type=float, default=300.0, help="seconds without a line")
    parser.add_argument("tests", nargs="*", default=TESTS, help="what pytest shall run there")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return run(arguments.kernel, arguments.tests, arguments.within, arguments.silent)
        except BlockingIOError:
            say("another run of the second machine holds .cache/vm/lock: wait for its end")
        except (MachineError, BrokerError) as error:
            say(str(error))
        except KeyboardInterrupt:
            say("interrupted; the machine is gone")
            return 130
    return 2


def run(package: str, tests: list[str], within_s: float, silent_s: float) -> int:
    """Make what is missing, boot, run, and judge; the exit code."""
    began = time.monotonic()
    collected = collect(tests)
    kernel = debian.kernel(CACHE, package)
    root = image.root_disk(CACHE)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch, DevBroker() as broker:
        folder = Path(scratch)
        disks = machine.Disks(folder / "initramfs", root, folder / "code", folder / "out")
        image.initramfs(kernel, disks.initramfs)
        environment = {BROKER_VARIABLE: broker.bootstrap, SLOWNESS_VARIABLE: str(SLOWNESS)}
        options = ["-v", "--durations=10", "--color=no", "-p", "no:cacheprovider", "-m", "kernel"]
        files = list(dict.fromkeys(test.partition("::")[0] for test in collected))
        named = any("::" in test for test in tests)
        image.code_disk(disks.code, environment, options + (tests if named else files))
        image.out_disk(disks.out)
        made = time.monotonic()
        number = len(collected)
        say(f"{number} tests to run under Linux {kernel.version}; made in {made - began:.0f} s")
        machine.run(kernel, disks, lambda line: print(line, flush=True), within_s, silent_s)
        code, counts = results(disks.out, folder)
    return judge(code, counts, len(collected), time.monotonic() - began)


def collect(tests: list[str]) -> list[str]:
    """The kernel tests that there are, as this machine sees it: `file::name`."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "kernel", *tests]
    done = subprocess.run(command, cwd=image.REPO, capture_output=True, text=True, check=False)
    found = [line for line in done.stdout.splitlines() if ".py::" in line]
    if done.returncode or not found:
        raise MachineError(f"pytest collects no kernel tests here:\n{done.stdout[-2000:]}")
    return found


def results(disk: Path, folder: Path) -> tuple[int, tally.Tally]:
    """pytest's exit code and the counts, from the disk that the machine wrote."""
    try:
        with tarfile.open(disk, "r:") as archive:
            archive.extractall(folder / "results", filter="data")
        code = int((folder / "results" / "exit").read_text())
        return code, tally.read(folder / "results" / "junit.xml")
    except (tarfile.TarError, OSError, ValueError, ParseError) as error:
        raise MachineError(f"the machine went down without a report ({error})") from error


def judge(code: int, counts: tally.Tally, collected: int, took_s: float) -> int:
    """Say what became of the tests; the exit code."""
    for line in counts.figures:
        say(f"measured: {line}")
    for name, reason in counts.elsewhere:
        say(f"another kernel's: {name}: {reason}")
    faults = counts.faults(collected)
    for fault in faults:
        say(fault)
    say(
        f"{len(counts.passed)} passed + {len(counts.elsewhere)} of another kernel = {collected}"
        f" collected: {'NO' if faults else 'yes'}; {took_s:.0f} s"
    )
    return code or bool(faults)


def say(line: str) -> None:
    """A line of the runner's own."""
    print(f"test-vm: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
