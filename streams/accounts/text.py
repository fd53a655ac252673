"""An account as a page of text, for whoever pays and whoever is on call."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from streams.accounts.benefit import Benefit
from streams.accounts.jobs import Times
from streams.accounts.lending import Fulfilment
from streams.accounts.online import Percentile
from streams.accounts.statement import Figures, Statement

STARVED_SHOWN = 5
_UNKNOWN = "not known"


def page(statement: Statement) -> str:
    """All of it, sums with their terms."""
    lines = [*_head(statement), "", *_benefit(statement), ""]
    lines += _figures(statement.figures)
    for pod in statement.starved[:STARVED_SHOWN]:
        lines.append(
            f"    starved: {pod.pod} ({pod.workload or 'no workload'}) on {pod.node}, "
            f"{pod.minutes} min, {pod.satisfaction:.3f} of what it asked for"
        )
    if statement.control is not None:
        lines += ["", "Control group, in the same time", *_figures(statement.control)]
    if len(statement.rows) > 1 or statement.by != "pool":
        lines += ["", *_rows(statement)]
    if statement.lacks:
        lines += ["", "What this account lacks", *(f"  - {each}" for each in statement.lacks)]
    return "\n".join(lines)


def _head(statement: Statement) -> Iterator[str]:
    yield (
        f"Account of stage {statement.stage or _UNKNOWN}, {_clock(statement.from_ms)} to "
        f"{_clock(statement.to_ms)} UTC"
    )
    seen = ", ".join(
        f"{stage or 'unknown'} {days:.2f}" for stage, days in statement.stage_node_days.items()
    )
    yield f"  node-days by stage: {seen or 'none'}"


def _benefit(statement: Statement) -> Iterator[str]:
    found = statement.benefit
    if found is None:
        yield "Net benefit: not known (no prices)"
        return
    yield f"Net benefit: {_money(found.net)}{'' if found.net is None else f' {found.currency}'}"
    yield (
        f"  = saved machines {_money(found.saved_machines)} + energy {_money(found.saved_energy)}"
        f" - online regression {_money(found.online_regression)}"
        f" - batch retries {_money(found.batch_retries)} - platform {_money(found.platform)}"
    )
    yield _against(found)


def _against(found: Benefit) -> str:
    return (
        f"  regression, compared with {found.regression_against}: "
        f"{_number(found.regression_hours)} h beyond objectives, "
        f"{_number(found.regression_failed_requests)} failed requests"
    )


def _figures(found: Figures) -> Iterator[str]:
    yield from _machines(found)
    lent = found.lending
    yield f"  reclaimed: {lent.reclaimed_core_hours:.1f} core-hours"
    yield _line("batch cpu", lent.batch_cpu, "core-hours")
    yield _line("batch memory", lent.batch_memory, "GiB-hours")
    yield _line("mid cpu", lent.mid_cpu, "core-hours")
    yield _line("mid memory", lent.mid_memory, "GiB-hours")
    yield from _held_back(found)
    yield from _work(found)
    yield from _online(found)


def _machines(found: Figures) -> Iterator[str]:
    one = found.machines
    yield (
        f"  machines: {one.nodes} nodes, {one.node_days:.2f} node-days; busy "
        f"{one.busy_core_hours:.1f} of {one.capacity_core_hours:.1f} core-hours "
        f"({_percent(one.utilisation)})"
    )
    yield (
        f"    killed for memory: {one.ooms} processes; in online pods {one.online_pod_ooms}, in "
        f"best-effort pods {one.best_effort_pod_ooms}"
    )


def _held_back(found: Figures) -> Iterator[str]:
    held = found.suppression
    share = "" if held.suppressed_permille is None else f" ({held.suppressed_permille} permille)"
    yield (
        f"  suppressed: {held.suppressed_pod_hours:.2f} of {held.best_effort_pod_hours:.2f} "
        f"best-effort pod-hours{share}"
    )
    gone = found.evictions
    reasons = "; ".join(f"{reason} {count}" for reason, count in gone.by_reason.items())
    yield (
        f"  evicted: {gone.pods} pods, {_number(gone.per_1000_node_days)} in 1,000 node-days"
        f"{f' ({reasons})' if reasons else ''}"
    )
    got = found.satisfaction
    yield (
        f"  satisfaction: {_share(got.mean)} of the CPU asked for; median minute "
        f"{_share(got.p50)}, worst tenth {_share(got.p10)}"
    )
    yield (
        f"    starved: {got.starved_pods} pods for {got.starved_pod_minutes} pod-minutes, waiting "
        f"for CPU in {got.starved_and_waiting_pod_minutes}"
    )


def _work(found: Figures) -> Iterator[str]:
    work = found.jobs
    states = ", ".join(f"{state} {count}" for state, count in work.left.items())
    yield (
        f"  jobs: {work.jobs}, done {work.done}, retries {work.retries}, progress of "
        f"{work.jobs_worth_of_progress:.2f} jobs, lost again {work.jobs_worth_lost:.2f}"
        f"{f'; now {states}' if states else ''}"
    )
    yield f"    queue time {_times(work.queue)}; completion time {_times(work.completion)}"


def _online(found: Figures) -> Iterator[str]:
    fared = found.online
    yield (
        f"  online: {fared.requests} requests, {_number(fared.requests_per_s)}/s a service and "
        f"node; failed {fared.errors} ({_number(fared.errors_permille)} permille)"
    )
    yield (
        f"    beyond objective {fared.beyond_hours:.3f} of {fared.judged_hours:.3f} h judged, "
        f"violations {_count(fared.violations)}"
    )
    shown = ", ".join(f"{name} {_latency(one)}" for name, one in fared.latency.items())
    yield f"    latency: {shown}"


def _line(name: str, one: Fulfilment, unit: str) -> str:
    return (
        f"    {name}: predicted {_number(one.predicted_hours)}, offered "
        f"{_number(one.offered_hours)}, lent {one.lent_hours:.2f}, used {one.used_hours:.2f} "
        f"{unit}; used {_share(one.used_of_lent)} of lent, "
        f"{_share(one.used_of_predicted)} of predicted"
    )


def _rows(statement: Statement) -> Iterator[str]:
    yield (
        f"By {statement.by}: used core-hours (batch, mid), suppressed, evicted, satisfaction, "
        "violations"
    )
    for row in statement.rows:
        lent, held = row.figures.lending, row.figures.suppression
        permille = held.suppressed_permille
        yield (
            f"  {row.name}: {lent.batch_cpu.used_hours:.2f}, {lent.mid_cpu.used_hours:.2f}, "
            f"{_UNKNOWN if permille is None else f'{permille} permille'}, "
            f"{row.figures.evictions.pods}, {_share(row.figures.satisfaction.mean)}, "
            f"{_count(row.figures.online.violations)}"
        )


def _times(one: Times) -> str:
    if not one.jobs:
        return _UNKNOWN
    shown = ", ".join(
        f"{name} {_number(None if ms is None else ms / 1000)} s"
        for name, ms in (("P50", one.p50_ms), ("P90", one.p90_ms), ("P99", one.p99_ms))
    )
    return f"{shown} (of {one.jobs})"


def _latency(one: Percentile) -> str:
    if one.least_us is None:
        return _UNKNOWN
    typical = "" if one.typical_us is None else f", typically {one.typical_us / 1000:g}"
    most = "or more" if one.most_us is None else f"to {one.most_us / 1000:g}"
    return f"{one.least_us / 1000:g} {most}{typical} ms"


def _clock(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _money(amount: float | None) -> str:
    return _UNKNOWN if amount is None else f"{amount:.2f}"


def _number(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:.2f}"


def _count(value: int | None) -> str:
    return _UNKNOWN if value is None else str(value)


def _share(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:.3f}"


def _percent(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:.1%}"
