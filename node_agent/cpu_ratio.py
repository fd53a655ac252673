"""How fast this machine's CPUs are beside those of the fleet, by a table of CPU models.

The inventory file holds the table, `node_agent.inventory_file` reads it and asks `Ratios.permille`
at each refresh of the node's facts. Choice: koordinator `cpunormalization/plugin.go`, by model and
then by hyper-threading and turbo; here the first pattern that matches the model counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

UNKNOWN = 1000
CPUINFO_HEAD = 8192  # characters; the model stands in the first CPU's part
_MODEL_KEYS = ("model name", "Model", "cpu model", "cpu")  # x86, some arm64, mips, ppc64


@dataclass(frozen=True, slots=True)
class Ratio:
    """Of one family of models, in permille; None: as ``base``."""

    model: str  # a pattern such as "Intel(R) Xeon(R) Platinum 8269CY*"
    base: int
    smt: int | None = None
    turbo: int | None = None
    smt_turbo: int | None = None


@dataclass(frozen=True, slots=True)
class Ratios:
    """The table, in its order."""

    rows: tuple[Ratio, ...] = ()

    def permille(self, base: str) -> int:
        """Of the machine below ``base``; `UNKNOWN` when no pattern matches its model."""
        model = cpu_model(base) if self.rows else ""
        for row in self.rows:
            if fnmatchcase(model, row.model):
                smt, turbo = _smt(base), _turbo(base)
                said = {(True, True): row.smt_turbo, (True, False): row.smt}.get(
                    (smt, turbo), row.turbo if turbo else None
                )
                return row.base if said is None else said
        return UNKNOWN


def cpu_model(base: str) -> str:
    """The model as the kernel names it; "" when it does not."""
    try:
        with Path(f"{base}/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
            lines = file.read(CPUINFO_HEAD).splitlines()
    except OSError:
        return ""
    said = {key.strip(): text.strip() for key, _, text in (line.partition(":") for line in lines)}
    return next((said[key] for key in _MODEL_KEYS if said.get(key)), "")


def _smt(base: str) -> bool:
    return _says(f"{base}/sys/devices/system/cpu/smt/active", "1")


def _turbo(base: str) -> bool:
    """Two drivers have a switch of their own; without any there is no turbo to speak of."""
    cpu = f"{base}/sys/devices/system/cpu"
    return _says(f"{cpu}/intel_pstate/no_turbo", "0") or _says(f"{cpu}/cpufreq/boost", "1")


def _says(path: str, word: str) -> bool:
    try:
        return Path(path).read_text(encoding="ascii").strip() == word
    except (OSError, UnicodeDecodeError):
        return False
