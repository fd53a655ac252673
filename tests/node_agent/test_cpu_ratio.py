"""CPU models and their ratio."""

from __future__ import annotations

from pathlib import Path

import pytest

from node_agent.cpu_ratio import UNKNOWN, Ratio, Ratios, cpu_model

XEON = "Intel(R) Xeon(R) Platinum 8163 CPU @ 2.50GHz"
TABLE = Ratios(
    (
        Ratio("Intel(R) Xeon(R) Platinum 8163*", 1000, smt=1100, turbo=1200, smt_turbo=1300),
        Ratio("AMD*", 1500),
    )
)


def machine(base: Path, model: str, files: dict[str, str]) -> str:
    (base / "proc").mkdir()
    (base / "proc/cpuinfo").write_text(f"processor\t: 0\nmodel name\t: {model}\nflags : a b\n")
    for name, text in files.items():
        path = base / "sys/devices/system/cpu" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return str(base)


@pytest.mark.parametrize(
    ("model", "files", "permille"),
    [
        (XEON, {}, 1000),
        (XEON, {"smt/active": "1"}, 1100),
        (XEON, {"smt/active": "0", "intel_pstate/no_turbo": "0"}, 1200),
        (XEON, {"smt/active": "1", "intel_pstate/no_turbo": "0"}, 1300),
        (XEON, {"smt/active": "1", "intel_pstate/no_turbo": "1"}, 1100),
        (XEON, {"cpufreq/boost": "1"}, 1200),
        ("AMD EPYC 9B14", {"smt/active": "1", "cpufreq/boost": "1"}, 1500),
        ("Fast CPU", {}, UNKNOWN),
    ],
)
def test_model_then_switches(
    tmp_path: Path, model: str, files: dict[str, str], permille: int
) -> None:
    assert TABLE.permille(machine(tmp_path, model, files)) == permille


def test_a_machine_that_does_not_name_its_model(tmp_path: Path) -> None:
    assert cpu_model(str(tmp_path)) == ""
    assert TABLE.permille(str(tmp_path)) == UNKNOWN
    assert Ratios((Ratio("*", 1200),)).permille(str(tmp_path)) == 1200
