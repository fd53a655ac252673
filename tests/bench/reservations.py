"""`make bench NAME=reservations TRACES=DIR`: what a reservation costs and how often it falls short.

DIR holds `.npz` files with uint16 members `*_pct_x100` [entities, 5-minute steps], 65535 missing.
For each member: the maximum of a day (policy a), p95 of a day x 1.1 (b), the peer's predictor and
ours, then our frontier over prices, tuned on half of the entities and judged on the other, both
ways round. Of the prices that keep the bar on the tuned half the middle one is judged. The bar: at
most policy a's violations with a reserved share at least 5 % smaller, and at most 0.01 % violations
on nodes of twenty. Goals: the bar on every judged half of a trace of three days or more. What the
shipped price, one for all, does on each half is reported beside it.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agents.prediction.short_term import Worth
from agents.table import Array, Bools, Ints
from tests.bench import reservation_policies as policies
from tests.bench.common import Goal, finish, say

SUFFIX = "_pct_x100"
NOTHING = 65_535
GROUPS, OF = 50, 20
PRICES = tuple(
    map(float, (4, 8, 12, 16, 20, 22, 24, 26, 28, 30, 32, 34, 36, 38, 40, 42, 44, 47, 50, 55, 60))
)
SHIPPED = 40.0
WORTH = Worth(price=SHIPPED, recent_share=0.2, peak_fraction=0.999, higher_share=0.03)
RECENT = 3
SHARE_MOST, VIOLATIONS_MOST, NODE_MOST = 0.95, 1.0, 0.01
"""The bar: reserved share and violations as parts of policy a's; percent of a node's steps."""
TINY = 1e-9
LONG = 3 * policies.DAY


@dataclass(frozen=True, slots=True)
class Score:
    """Percentages over the counted steps."""

    reserved: float
    violations: float
    worst_tenth: float  # violations of the entity at the 90th percentile
    node: float | None  # violations on nodes of twenty; None with fewer entities

    def line(self) -> str:
        node = "     -" if self.node is None else f"{self.node:6.3f}"
        return f"{self.reserved:9.2f} {self.violations:9.3f} {self.worst_tenth:9.2f}    {node}"


def score(usage: Ints, reserved: Ints) -> Score:
    """Counted from the 25th hour, of a trace of one day from the 7th."""
    begin = policies.DAY if usage.shape[1] > policies.DAY else policies.LEAST
    usage, reserved = usage[:, begin:], reserved[:, begin:]
    known: Bools = usage != policies.MISSING
    above = (usage > reserved) & known
    each = 100 * above.sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    return Score(
        reserved=float(reserved[known].mean()) * 100 / policies.WHOLE,
        violations=100 * float(above.sum()) / float(known.sum()),
        worst_tenth=float(np.percentile(each, 90)),
        node=_on_nodes(np.maximum(usage, 0), reserved),
    )


def part(one: float, whole: float) -> float:
    """One as a part of the whole; finite where the whole is nothing."""
    return one / max(whole, TINY)


def _on_nodes(usage: Ints, reserved: Ints) -> float | None:
    if len(usage) < OF:
        return None
    choose = np.random.default_rng(0)
    above = 0
    for _ in range(GROUPS):
        group = choose.choice(len(usage), OF, replace=False)
        above += int((usage[group].sum(axis=0) > reserved[group].sum(axis=0)).sum())
    share: float = 100 * above / (GROUPS * usage.shape[1])
    return share


def judge(usage: Ints, largest: Ints, ours: list[Ints]) -> dict[str, Any]:
    """The frontier of both halves, each once tuned on and once judged."""
    result: dict[str, Any] = {}
    halves = [slice(0, None, 2), slice(1, None, 2)]
    for tuned, judged in (halves, halves[::-1]):
        side = "odd" if judged.start else "even"
        a_tuned = score(usage[tuned], largest[tuned])
        a = score(usage[judged], largest[judged])
        on_tuned = [score(usage[tuned], one[tuned]) for one in ours]
        on_judged = [score(usage[judged], one[judged]) for one in ours]
        chosen = _tune(a_tuned, on_tuned)
        say(f"  judged on {side} entities (policy a: {a.reserved:.2f} %, {a.violations:.3f} %)")
        say("    price  share of a's, tuned / judged  violations of a's, tuned / judged  node, %")
        for i, price in enumerate(PRICES):
            t, j = on_tuned[i], on_judged[i]
            mark = " *" if i == chosen else ("  shipped" if price == SHIPPED else "")
            say(
                f"    {price:5.0f}       {part(t.reserved, a_tuned.reserved):.3f} / "
                f"{part(j.reserved, a.reserved):.3f}                  "
                f"{part(t.violations, a_tuned.violations):.3f} / "
                f"{part(j.violations, a.violations):.3f}"
                f"              {'-' if j.node is None else f'{j.node:.3f}'}{mark}"
            )
        for label, i in (("tuned", chosen), ("shipped", PRICES.index(SHIPPED))):
            one = on_judged[i]
            result[f"{side}_{label}"] = {
                "price": PRICES[i],
                "share_of_a": round(part(one.reserved, a.reserved), 4),
                "violations_of_a": round(part(one.violations, a.violations), 4),
                "node_percent": one.node,
            }
    return result


def _tune(a: Score, ours: list[Score]) -> int:
    """The middle one of the prices that keep the bar, the lower of two, or the nearest to it."""
    worst = [
        max(part(one.reserved, a.reserved) / SHARE_MOST, part(one.violations, a.violations))
        for one in ours
    ]
    good = [i for i, ratio in enumerate(worst) if ratio <= 1]
    return good[(len(good) - 1) // 2] if good else int(np.argmin(worst))


def compare(name: str, usage: Ints) -> dict[str, Any]:
    """One member of a file: the table and the frontier."""
    resource = "memory" if "mem" in name.rpartition(":")[2] else "cpu"
    largest, ranked = policies.of_window(usage)
    ours = policies.of_price(usage, resource, WORTH, PRICES, RECENT)
    rows = {
        "a: max 24 h": largest,
        "b: p95 24 h x 1.1": ranked,
        "peer: p95/p98 + 10 %": policies.of_peer(usage, resource),
        f"ours, price {SHIPPED:.0f}": ours[PRICES.index(SHIPPED)],
    }
    say(f"{name} {list(usage.shape)}")
    say("  policy                reserved % violations %  p90 entity  node of 20 %")
    scores = {label: score(usage, reserved) for label, reserved in rows.items()}
    for label, one in scores.items():
        say(f"  {label:22}{one.line()}")
    table = {
        label.partition(":")[0].partition(",")[0]: [round(s.reserved, 2), round(s.violations, 3)]
        for label, s in scores.items()
    }
    return {"reserved_and_violations": table, **judge(usage, largest, ours)}


def members(folder: Path) -> dict[str, Ints]:
    """All usage arrays below ``folder``, by file and member, cut at the whole request."""
    found = {}
    for path in sorted(folder.glob("*.npz")):
        with np.load(path, allow_pickle=False) as file:
            for name in sorted(file.files):
                array: Array = file[name] if name.endswith(SUFFIX) else np.empty(0)
                if (
                    array.dtype == np.uint16
                    and array.ndim == 2
                    and array.shape[0] > 1
                    and array.shape[1] > policies.LEAST
                ):
                    cut = np.minimum(array.astype(np.int64), policies.WHOLE)
                    usage = np.where(array == NOTHING, policies.MISSING, cut)
                    found[f"{path.stem}:{name.removesuffix(SUFFIX)}"] = usage
    return found


def goals_of(name: str, figures: dict[str, Any]) -> list[Goal]:
    goals = []
    for which in ("odd_tuned", "even_tuned"):
        one = figures[which]
        goals += [
            Goal(f"{name} {which} share_of_a", one["share_of_a"], SHARE_MOST),
            Goal(f"{name} {which} violations_of_a", one["violations_of_a"], VIOLATIONS_MOST),
        ]
        if one["node_percent"] is not None:
            goals.append(Goal(f"{name} {which} node_percent", one["node_percent"], NODE_MOST))
    return goals


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="reservations")
    parser.add_argument("--traces", type=Path, default=os.environ.get("TRACES") or None)
    parser.add_argument("--only", default="", help="members whose name holds this")
    chosen = parser.parse_args(argv)
    if chosen.traces is None:
        parser.error("say where the traces are: --traces DIR, or TRACES=DIR")
    figures: dict[str, Any] = {}
    goals: list[Goal] = []
    for name, usage in members(chosen.traces).items():
        if chosen.only in name:
            figures[name] = compare(name, usage)
            if usage.shape[1] >= LONG:
                goals += goals_of(name, figures[name])
    return finish("reservations", figures, goals)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
