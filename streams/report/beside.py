"""What another policy would have made of it, beside what was: from `slackwater replay --policy`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from streams.explain.line import clock
from streams.recording.manifest import BadRecording
from streams.replay.run import Wanted, opened
from streams.replay.what_if.command import choices_of
from streams.replay.what_if.result import FORMAT, Figures, WhatIf
from streams.replay.what_if.run import Asked, answer
from streams.report.model import Finding

CORE_HOUR_MS = 3_600_000
Told = tuple[dict[str, Any], list[Finding]]


def read(path: Path) -> WhatIf:
    """The answer as a file. Raises BadRecording for one that is none."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=WhatIf)
    except OSError as error:
        raise BadRecording(f"{path} cannot be opened: {error.strerror or error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRecording(
            f"{path} is no answer to what if: {error}; make one with "
            "slackwater replay BUNDLE --policy FILE --json"
        ) from None
    if found.format > FORMAT:
        raise BadRecording(
            f"{path} is of format {found.format}, this reads up to {FORMAT}: upgrade"
        )
    return found


def run(path: Path, policy: str, jobs: int = 0) -> WhatIf:
    """Both policies over the recording; ``policy``: a file, or version:N of the recording;
    ``jobs``: processes, 0: one a core. Raises BadRecording, CannotReplay, BadPolicy.
    """
    wanted = Wanted(path=path)
    with opened(wanted) as source:
        choices = choices_of(source, [policy], [])
    return answer(
        Asked(wanted, tuple(choices)), jobs or os.cpu_count() or 1, lambda _over, _of: None
    )[0]


def told(found: WhatIf) -> Told:
    """Its figures for the page, and its sentence for the findings."""
    return msgspec.to_builtins(found), [_finding(found)]


def _finding(found: WhatIf) -> Finding:
    changes = ", ".join(f"{key} {change}" for key, change in found.other.changes.items())
    source = found.other.source.replace("version:", "policy version ")
    name = source + (f" ({changes})" if changes else "")
    if found.mark is None:
        return Finding("what_if", f"{name} would have decided the same.")
    was, would = found.whole.was, found.whole.would
    return Finding(
        "what_if",
        f"With {name} instead: {_figures(was, would)}; from {clock(found.mark.log_ms)[11:]} on "
        "this is a model's word, with the limits that it states.",
        from_ms=found.mark.log_ms,
    )


def _figures(was: Figures, would: Figures) -> str:
    """The handful that says whether it would have been better."""
    hours = (each.best_effort_core_ms / CORE_HOUR_MS for each in (was, would))
    rows = (
        ("reports of services beyond their objective", was.slo_misses, would.slo_misses),
        ("pods told to leave", was.evicted_pods, would.evicted_pods),
        ("node-seconds above the recorded threshold", was.above_recorded_ms // 1000,
         would.above_recorded_ms // 1000),
    )  # fmt: skip
    parts = [f"{after} {name} instead of {before}" for name, before, after in rows]
    used_was, used_would = hours
    parts.append(f"{used_would:.2f} core-hours of best-effort work instead of {used_was:.2f}")
    return ", ".join(parts)
