"""`slackwater replay --policy ... --sweep ...`: asks, and prints the answer.

Called by `streams.replay.cli` where one of the two is given.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import msgspec
import typer

from streams.recording.source import Source
from streams.replay.errors import CannotReplay
from streams.replay.run import Wanted, opened
from streams.replay.what_if.policies import Choice, chosen, swept
from streams.replay.what_if.run import POOL_LABEL, Asked, answer
from streams.replay.what_if.scores import SCORES, best_first
from streams.replay.what_if.text import told, told_together

POLICY = typer.Option(
    [], "--policy", help="What if: another policy, a file or version:N of the recording; "
    "repeatable."
)  # fmt: skip
SWEEP = typer.Option(
    [], "--sweep", metavar="KEY=A,B,C", help="What if: each value of a key of that policy, or of "
    "the recorded one; several keys: every combination."
)  # fmt: skip
SORT_BY = typer.Option(
    "", "--sort-by", help="What if: best first by a figure, such as lent_core_h or slo_misses."
)
POOL = typer.Option(
    POOL_LABEL, "--pool-label", help="What if: the label that tells nodes' pools apart."
)


def what_if(
    wanted: Wanted, partitions: Sequence[int], named: Sequence[str], sweeps: Sequence[str],
    sort_by: str, pool_label: str, jobs: int, *, as_json: bool,
) -> None:  # fmt: skip
    """Print what each policy would have come to.

    Raises what `answer` raises, and BadPolicy: before anything is folded.
    """
    if sort_by and sort_by not in SCORES:
        raise CannotReplay(f"--sort-by {sort_by!r}: one of {', '.join(SCORES)}")
    with opened(wanted) as source:
        choices = choices_of(source, named, sweeps)
    single = len(choices) == 1 and not sweeps
    asked = Asked(wanted, tuple(choices), tuple(partitions), pool_label, over_time=single)
    shows = sys.stderr.isatty()
    answers = answer(asked, jobs or os.cpu_count() or 1, _progress if shows else _silent)
    if shows:
        typer.echo("\r\033[K", err=True, nl=False)
    if sort_by:
        answers = best_first(answers, sort_by)
    if as_json:
        document = msgspec.json.encode(answers[0] if single else answers)
        typer.echo(msgspec.json.format(document, indent=2).decode())
    else:
        typer.echo("\n".join(told(answers[0]) if single else told_together(answers)))


def choices_of(source: Source, named: Sequence[str], sweeps: Sequence[str]) -> list[Choice]:
    """The policies that are asked about. Raises CannotReplay, BadPolicy."""
    choices = chosen(source, named)
    if not sweeps:
        return choices
    if len(choices) > 1:
        raise CannotReplay("--sweep goes over one policy: name one --policy, or none")
    return swept(source, choices[0] if choices else None, sweeps)


def _progress(over: int, of: int) -> None:
    typer.echo(f"\r\033[Kwhat if: {over} of {of} folds", err=True, nl=False)


def _silent(over: int, of: int) -> None:
    """Nobody looks."""
