"""A `Summary` as text for people. Called by the demo's `cli`."""

from __future__ import annotations

from streams.demo.board import cores
from streams.demo.judge import Bounds, Reaction, Verdict
from streams.demo.summary import Outage, Summary

_PHASES = (("alone", "alone"), ("unprotected", "unprotected"), ("protected", "protected"))


def lines(summary: Summary) -> list[str]:
    """The summary, one line an entry."""
    told = ["", f"Demo of {summary.seconds:.0f} s, {summary.nodes} simulated nodes"]
    if summary.why_not_real:
        told.append(_row("no real node", summary.why_not_real))
    batch = f"{cores(summary.batch_milli)} cores on {summary.capacity_nodes} nodes for batch work"
    lent = f"lent now {cores(summary.lent_milli)}, at most {cores(summary.peak_lent_milli)}"
    told.append(_row("capacity", f"{batch}; {lent}"))
    told.append(_row("bridge", f"{summary.bridge_patches} patches to the scheduler (dry run)"))
    here = f"{summary.real_best_effort_core_s:.1f} core-seconds on the real node"
    there = f"{summary.simulated_best_effort_core_s:.1f} on simulated ones"
    told.append(_row("best effort", f"{here}, {there}; {summary.jobs_done} jobs done"))
    told.append(_row("commands", f"{_counts(summary.commands)}; acks: {_counts(summary.acks)}"))
    letters = f"dead letters: {_counts(summary.dead_letters)}"
    if summary.own_milli:
        told.append(_row("own cost", f"{cores(summary.own_milli)} cores for broker and all else"))
    told.append(_row("trouble", f"{summary.evictions} evictions, {letters}"))
    if summary.latencies:
        told.append(_row("online p99", _latencies(summary)))
    if summary.verdict is not None and summary.bounds is not None and summary.verdict.reactions:
        told += _steps(summary.verdict, summary.bounds)
    if summary.outage is not None:
        told += _outage(summary.outage)
    told += _ending(summary)
    return told


def _row(label: str, said: str) -> str:
    return f"  {label:<13}{said}"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"


def _latencies(summary: Summary) -> str:
    parts = []
    for phase, label in _PHASES:
        latency = summary.latencies.get(phase)
        if latency is not None:
            parts.append(f"{label} {latency.p99_us / 1000:.2f} ms")
    return ", ".join(parts) + " (delay of an open-loop service; noisy machines move it)"


def _steps(verdict: Verdict, bounds: Bounds) -> list[str]:
    counted = f"{len(verdict.reactions)} steps, {len(verdict.judged)} up-steps judged"
    first = f"first lowering write within {bounds.first_us / 1000:.0f} ms (one interval + 150 ms)"
    told = [
        _row("online load", f"{counted}, {verdict.disturbed_steps} disturbed by foreign load"),
        _row("bounds", f"{first}; use within 0.10 core of the rule, settled"),
        _row("", "step   load     first write    command  settled   used / rule  error"),
    ]
    told += [_row("", step_line(one)) for one in verdict.reactions]
    return told


def step_line(one: Reaction) -> str:
    """One step as a row of the table above."""
    mark = f"  disturbed: {cores(one.others_milli)} foreign" if one.disturbed else ""
    mark += "  low before" if one.low_before else ""
    first = f"{_ms(one.first_us)} {one.by}".strip() if one.step.up else "-"
    return (
        f"{'up' if one.step.up else 'down':<5}{cores(one.step.milli):>6}{first:>16}"
        f"{_ms(one.command_us) if one.step.up else '-':>11}"
        f"{_ms(one.settled_us) if one.step.up else '-':>9}"
        f"   {cores(one.used_milli)} / {cores(one.rule_milli)}   {cores(one.error_milli)}{mark}"
    )


def _ms(value_us: int | None) -> str:
    return "none" if value_us is None else f"{value_us / 1000:.0f} ms"


def _outage(outage: Outage) -> list[str]:
    measured = outage.seconds_measured is not None
    again = (
        f"whole {outage.whole_again_s:.1f} s after its return"
        if outage.whole_again_s is not None
        else f"not whole within {outage.whole_within_s:.0f} s of its return ({outage.missing})"
    )
    away = f"broker away for {outage.asked_s:.0f} s"
    law = f"{outage.seconds_measured} seconds measured, {len(outage.beyond_law)} beyond the law"
    return [_row("outage", f"{away}: {law}; {again}" if measured else f"{away}: {again}")]


def _ending(summary: Summary) -> list[str]:
    left = len(summary.left_processes) + len(summary.left_cgroups)
    told = [_row("left behind", f"{left} things, see below" if left else "nothing")]
    if summary.killed:
        told.append(_row("killed", f"{', '.join(summary.killed)}: did not end when told"))
    failures = summary.failures
    if summary.interrupted and not failures:
        return [*told, "Interrupted; everything was stopped and cleaned up."]
    if not failures:
        return [
            *told,
            "The loop held. Next: make demo (until Ctrl-C), slackwater demo --broker-outage 60s,",
            "make bench NAME=closed-loop.",
        ]
    headline = "The loop could not be judged:" if summary.unjudged else "The loop did NOT hold:"
    return [*told, headline, *(f"  - {failure}" for failure in failures)]
