"""The second machine's kernel: Debian's cloud image package, unpacked once into the cache.

Called by `tests.vm.__main__`. Nothing is installed: `apt-get download` and `dpkg-deb -x` need no
rights. A kernel that is in the cache is used without asking apt.
"""

from __future__ import annotations

import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

NEWEST = "linux-image-cloud-amd64"
"""Depends on the newest cloud kernel of this Debian release: small, and it has cgroup v2 whole."""


class MachineError(RuntimeError):
    """The second machine cannot be made or does not run; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """An unpacked kernel package."""

    version: str  # as uname says it
    image: Path  # the bootable file
    modules: Path  # its kernel/ folder


def kernel(cache: Path, package: str = NEWEST) -> Kernel:
    """The cached kernel of that (meta-)package, fetched when there is none. Raises MachineError."""
    folder = cache / package
    found = sorted(folder.glob("*/boot/vmlinuz-*"))
    if not found:
        _fetch(folder, package)
        found = sorted(folder.glob("*/boot/vmlinuz-*"))
    if not found:
        raise MachineError(f"no boot/vmlinuz-* in {folder}: remove that folder and try again")
    image = found[-1]
    version = image.name.removeprefix("vmlinuz-")
    return Kernel(version, image, image.parents[1] / "lib" / "modules" / version / "kernel")


def _fetch(folder: Path, package: str) -> None:
    """Download the package, or the one that it depends on, and unpack it; whole or not at all."""
    named = _run("apt-cache", "depends", "--important", package).split()
    package = next((w for w in named[1:] if w.startswith("linux-image-")), package)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        fresh = Path(scratch, "unpacked")
        fresh.mkdir()
        _run("apt-get", "download", package, inside=Path(scratch))
        for archive in Path(scratch).glob("*.deb"):
            _run("dpkg-deb", "-x", str(archive), str(fresh))
        folder.mkdir(exist_ok=True)
        fresh.rename(folder / package)


def _run(*command: str, inside: Path | None = None) -> str:
    try:
        done = subprocess.run(command, cwd=inside, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise MachineError(
            f"{command[0]} is missing: the kernel comes from Debian's apt"
        ) from error
    if done.returncode:
        last = (done.stderr.strip() or "no word why").splitlines()[-1]
        raise MachineError(f"'{' '.join(command)}' failed: {last}; run 'sudo apt-get update'")
    return done.stdout
