"""Answers to "what if" as text for a terminal: one policy in full, several as one table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from streams.explain.line import clock
from streams.replay.what_if.result import Group, Side, WhatIf
from streams.replay.what_if.scores import SCORES

GROUPS_SHOWN = 20
"""Of pools and partitions; the JSON document has them all, and each node."""
SWEPT = ("lent_core_h", "lent_gib_h", "used_core_s", "withheld_core_s", "evictions", "commands",
         "above_recorded_s", "slo_misses")  # fmt: skip


def told(answer: WhatIf) -> Iterator[str]:
    """One answer."""
    whole = answer.whole
    yield (
        f"{answer.recording}: {_counted(whole.was.nodes, 'node')} in "
        f"{_counted(len(answer.partitions), 'partition')}, "
        f"{clock(answer.from_ms)} to {clock(answer.to_ms)} UTC"
    )
    yield f"was:   {_side(answer.recorded)}"
    yield f"would: {_side(answer.other)}"
    for key, change in answer.other.changes.items():
        yield f"       {key}: {change}"
    if answer.mark is None:
        yield "No mark: both policies say the same throughout, so all of it is fact."
    else:
        yield f"Mark: diverges at {clock(answer.mark.log_ms)} {answer.mark.sentence}"
        yield (
            f"      {len(answer.marks)} of {whole.was.nodes} nodes have one; before it all is "
            "fact, behind it the model's (docs/what-if.md)"
        )
    yield ""
    yield from _table(_figures(whole))
    for kind in ("pool", "partition"):
        groups = [group for group in answer.groups if group.kind == kind]
        if len(groups) > 1:
            yield ""
            yield from _table(_by_group(kind, groups[:GROUPS_SHOWN]))
    if answer.examples:
        yield ""
        yield "First differences:"
    for example in answer.examples:
        yield f"  {clock(example.log_ms)} {example.decider} on {example.node}"
        yield f"    was:   {example.was}"
        yield f"    would: {example.would}"
    for problem in answer.problems:
        yield f"Not all was there: {problem}"


def told_together(answers: Sequence[WhatIf]) -> Iterator[str]:
    """Several answers about one recording, one a line, below what was."""
    head = ["policy", *SWEPT, "diverges"]
    first = answers[0]
    rows = [head, ["was", *(SCORES[name].shown(first.whole.was) for name in SWEPT), ""]]
    for answer in answers:
        mark = "" if answer.mark is None else clock(answer.mark.log_ms)
        figures = [SCORES[name].shown(answer.whole.would) for name in SWEPT]
        rows.append([answer.other.source, *figures, mark])
    yield from _table(rows)
    yield ""
    for name in SWEPT:
        yield f"{name}: {SCORES[name].says}; {SCORES[name].better} is better"
    yield "What lies behind the time in diverges is the model's: docs/what-if.md."


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _side(side: Side) -> str:
    named = [
        f"version {version} ({digest})" if version >= 0 else digest
        for version, digest in zip(side.versions, side.digests, strict=False)
    ] or list(side.digests)
    return f"{side.source}, {', then '.join(named) or 'no policy'}"


def _figures(group: Group) -> list[list[str]]:
    rows = [["", "was", "would be", "difference"]]
    for score in SCORES.values():
        was, would = score.of(group.was), score.of(group.would)
        rows.append([score.says, *(score.worded(each) for each in (was, would, would - was))])
    for what, one, other in (
        ("evicted, ", group.was.evictions, group.would.evictions),
        *(
            (f"{decider}, ", group.was.commands.get(decider, {}),
             group.would.commands.get(decider, {}))
            for decider in sorted(group.was.commands.keys() | group.would.commands.keys())
        ),
    ):  # fmt: skip
        for reason in sorted(one.keys() | other.keys()):
            was, would = one.get(reason, 0), other.get(reason, 0)
            rows.append([f"  {what}{reason}", f"{was:,}", f"{would:,}", f"{would - was:,}"])
    return rows


def _by_group(kind: str, groups: Sequence[Group]) -> list[list[str]]:
    names = ("lent_core_h", "used_core_s", "evictions", "above_recorded_s", "slo_misses")
    rows = [[kind, "nodes", *names]]
    for group in groups:
        pairs = (
            f"{SCORES[name].shown(group.was)} -> {SCORES[name].shown(group.would)}"
            for name in names
        )
        rows.append([group.name, str(group.was.nodes), *pairs])
    return rows


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns as wide as they must be; the first to the left, figures to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        first, *others = (
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join([first, *others]).rstrip()
