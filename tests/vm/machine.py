"""One run of the second machine under qemu: its console streams out, its end is always ours.

Called by `tests.vm.__main__`. qemu dies with the process that started it (parent death signal), at
a deadline, after a long silence, and on any way out of `run`.
"""

from __future__ import annotations

import os
import selectors
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.vm.debian import Kernel, MachineError

MEMORY_MB, CPUS = 3072, 2
LAST_LINES = 30
LOOK_S = 1.0
COMMAND_LINE = "console=ttyS0 quiet panic=-1 cgroup_no_v1=all psi=1"


@dataclass(frozen=True, slots=True)
class Disks:
    """Root and code are never written: qemu keeps the changes aside and forgets them."""

    initramfs: Path
    root: Path
    code: Path
    out: Path


def run(
    kernel: Kernel,
    disks: Disks,
    say: Callable[[str], None],
    within_s: float,
    silent_s: float,
) -> None:
    """Run until the machine powers off; each line of its console goes to ``say``.

    Raises MachineError at the deadline, or after ``silent_s`` without a line, with its last lines.
    """
    command = _command(kernel, disks)
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as qemu:
        try:
            _follow(qemu, say, within_s, silent_s)
        finally:
            qemu.kill()
    if qemu.returncode:
        raise MachineError(f"qemu ended with {qemu.returncode}; see its words above")


def _follow(
    qemu: subprocess.Popen[bytes], say: Callable[[str], None], within_s: float, silent_s: float
) -> None:
    assert qemu.stdout is not None
    source = qemu.stdout.fileno()
    began = heard = time.monotonic()
    last: deque[str] = deque(maxlen=LAST_LINES)
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(source, selectors.EVENT_READ)
        while True:
            if selector.select(LOOK_S):
                data = os.read(source, 65_536)
                if not data:
                    qemu.wait(LOOK_S * 10)
                    return
                heard = time.monotonic()
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    last.append(line.decode(errors="replace").rstrip("\r"))
                    say(last[-1])
            now = time.monotonic()
            reason = ""
            if now - began > within_s:
                reason = f"did not end within {within_s:.0f} s"
            elif now - heard > silent_s:
                reason = f"said nothing for {silent_s:.0f} s"
            if reason:
                tail = "\n  ".join([*last, rest.decode(errors="replace")])
                raise MachineError(f"the second machine {reason}; its last lines:\n  {tail}")


def _command(kernel: Kernel, disks: Disks) -> list[str]:
    qemu = shutil.which("qemu-system-x86_64")
    if qemu is None:
        raise MachineError("qemu-system-x86_64 is missing: run '.ci/setup vm'")
    drives = [
        word
        for path, snapshot in ((disks.root, "on"), (disks.code, "on"), (disks.out, "off"))
        for word in ("-drive", f"file={path},if=virtio,format=raw,snapshot={snapshot}")
    ]
    return [
        *("setpriv", "--pdeathsig", "KILL", "--", qemu),
        *("-accel", "tcg,thread=multi", "-cpu", "max", "-smp", str(CPUS), "-m", str(MEMORY_MB)),
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio"),
        *("-kernel", str(kernel.image), "-initrd", str(disks.initramfs)),
        *("-append", COMMAND_LINE, *drives),
        *("-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile="),
    ]
