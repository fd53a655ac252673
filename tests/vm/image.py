"""The second machine's disks: its root file system, this project, and an initramfs to find both.

Called by `tests.vm.__main__`. The root file system is the Python that runs this, its packages, the
shared libraries both need, and busybox: an ext4 image made without root (`mke2fs -d`), kept in the
cache under a key of all that goes in. The project goes into an image of its own, made for each run.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.vm.debian import Kernel, MachineError

ROOT_MB, CODE_MB, OUT_MB = 1024, 160, 64
"""Sparse: a disk takes what is written."""
HERE = Path(__file__).parent
REPO = HERE.parents[1]
FOLDERS = ("bin", "dev", "etc", "proc", "root", "sys", "tmp", "venv/bin", "work")
NEITHER_RUN_NOR_READ = re.compile(
    r"/(site-packages/(mypy|mypyc|pip|ruff)|\w+__mypyc\..*|python3\.\d+/(site-packages|test|idlelib"
    r"|tkinter|lib2to3|ensurepip|config-.*))$"
)
"""Of the packages, what no test on that machine needs: a third of the size."""
MODULES = ("virtio_pci", "virtio_blk", "virtio_net")
PRECOMPILED = ("schemas", "agents", "streams", "node_agent")


def root_disk(cache: Path) -> Path:
    """The root file system. Raises MachineError when a tool is missing."""
    path = cache / f"root-{_key()}.ext4"
    if path.exists():
        return path
    for old in cache.glob("root-*.ext4"):
        old.unlink()
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        tree = Path(scratch, "tree")
        _fill_root(tree)
        fresh = Path(scratch, "root.ext4")
        _make_disk(tree, fresh, ROOT_MB)
        fresh.rename(path)
    return path


def code_disk(path: Path, environment: dict[str, str], arguments: Sequence[str]) -> None:
    """The project as it lies in the work tree, and what this run shall do."""
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        tree = Path(scratch, "tree")
        listed = _run("git", "-C", str(REPO), "ls-files", "-zco", "--exclude-standard")
        for name in filter(None, listed.split("\0")):
            if (REPO / name).is_file():
                (tree / "repo" / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(REPO / name, tree / "repo" / name)
        _run(
            sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash",
            *("-s", str(tree / "repo"), "-p", "/work/repo"),
            *(str(tree / "repo" / name) for name in PRECOMPILED),
        )  # fmt: skip
        (tree / "task").mkdir()
        lines = (f"export {name}={value}\n" for name, value in environment.items())
        (tree / "task" / "environment").write_text("".join(lines))
        (tree / "task" / "arguments").write_text("".join(f"'{word}'\n" for word in arguments))
        _make_disk(tree, path, CODE_MB)


def out_disk(path: Path) -> None:
    """An empty disk that takes a tar of the results."""
    with path.open("wb") as disk:
        disk.truncate(OUT_MB << 20)


def initramfs(kernel: Kernel, path: Path) -> None:
    """Busybox, the modules that the disks need, and `init`."""
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        tree = Path(scratch)
        for name in ("bin", "dev", "proc", "root", "sys"):
            (tree / name).mkdir()
        shutil.copy2(_busybox(), tree / "bin" / "busybox")
        (tree / "bin" / "sh").symlink_to("busybox")
        shutil.copy2(HERE / "init", tree / "init")
        (tree / "init").chmod(0o755)
        modules = tree / "lib" / "modules" / kernel.version
        modules.mkdir(parents=True)
        for file in (f for f in kernel.modules.rglob("*.ko*") if _of_virtio(f)):
            raw = file.read_bytes()
            plain = lzma.decompress(raw) if file.suffix == ".xz" else raw
            (modules / file.name.removesuffix(".xz")).write_bytes(plain)
        _run(_busybox(), "depmod", "-b", str(tree), kernel.version)
        names = "".join(f"{each.relative_to(tree)}\n" for each in sorted(tree.rglob("*")))
        with path.open("wb") as archive:
            subprocess.run(
                [_busybox(), "cpio", "-o", "-H", "newc", "-R", "0:0"],
                cwd=tree, input=names.encode(), stdout=archive, stderr=subprocess.PIPE, check=True,
            )  # fmt: skip


def _of_virtio(module: Path) -> bool:
    """A module that is one of `MODULES` or that one of them may depend on."""
    name = module.name.partition(".")[0].replace("-", "_")
    needed = ("virtio", "virtio_ring", "failover", "net_failover")
    return name in MODULES or name in needed or name.startswith("virtio_pci")


def _fill_root(tree: Path) -> None:
    for name in FOLDERS:
        (tree / name).mkdir(parents=True)
    library = Path(sysconfig.get_path("stdlib"))
    packages = Path(sysconfig.get_path("purelib"))
    python = Path(os.path.realpath(sys.executable))
    _copy(library, tree / library.relative_to("/"))
    _copy(packages, tree / "venv" / "lib" / library.name / "site-packages")
    (tree / python.relative_to("/")).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(python, tree / python.relative_to("/"))
    (tree / "venv" / "bin" / "python").symlink_to(python)
    (tree / "venv" / "pyvenv.cfg").write_text(f"home = {python.parent}\n")
    libraries = _libraries([python, *library.rglob("*.so"), *packages.rglob("*.so*")])
    own = (str(library), str(packages))
    for found in sorted(each for each in libraries if not str(each).startswith(own)):
        target = tree / found.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(os.path.realpath(found), target)
    folders = dict.fromkeys(str(found.parent) for found in sorted(libraries))
    (tree / "etc" / "library-path").write_text(":".join(folders))
    (tree / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (tree / "etc" / "hosts").write_text("127.0.0.1 localhost second-kernel\n")
    shutil.copy2(_busybox(), tree / "bin" / "busybox")
    for applet in _run(_busybox(), "--list").split():
        if applet != "busybox":
            (tree / "bin" / applet).symlink_to("busybox")


def _copy(source: Path, target: Path) -> None:
    def unneeded(folder: str, names: list[str]) -> Iterable[str]:
        return [
            name
            for name in names
            if NEITHER_RUN_NOR_READ.search(f"{folder}/{name}") or name.endswith(".pth")
        ]

    shutil.copytree(source, target, symlinks=True, ignore=unneeded)


def _libraries(binaries: Iterable[Path]) -> set[Path]:
    """Every shared library that one of these loads, and the loader itself."""
    files = [str(path) for path in binaries if path.is_file()]
    done = subprocess.run(["ldd", *files], capture_output=True, text=True, check=False)
    return {Path(found) for found in re.findall(r"(?:=> |\t)(/\S+) \(0x", done.stdout)}


def _key() -> str:
    """Of all that goes into the root file system: packages, Python, busybox, this recipe."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    digest.update(sys.version.encode() + os.path.realpath(sys.executable).encode())
    digest.update(Path(_busybox()).read_bytes())
    for record in sorted(Path(sysconfig.get_path("purelib")).glob("*.dist-info/RECORD")):
        digest.update(record.read_bytes())
    return digest.hexdigest()[:16]


def _make_disk(tree: Path, disk: Path, size_mb: int) -> None:
    disk.unlink(missing_ok=True)
    options = "-q -t ext4 -O ^has_journal -m 0 -E root_owner=0:0".split()
    _run("/sbin/mke2fs", *options, "-d", str(tree), str(disk), f"{size_mb}M")


def _busybox() -> str:
    found = shutil.which("busybox")
    if found is None or b"/ld-linux" in Path(found).read_bytes():
        raise MachineError("no static busybox here: run 'sudo apt-get install busybox-static'")
    return found


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise MachineError(f"{command[0]} is missing: run '.ci/setup vm'") from error
    if done.returncode:
        raise MachineError(f"'{' '.join(command[:3])} ...' failed: {done.stderr.strip()[-300:]}")
    return done.stdout
