"""The demo's face: a table of nodes on a terminal, a line every few seconds elsewhere.

Draws a `Board` and the `Status` that `run` keeps; decides nothing. Readable at 80 x 24.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import Self, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from streams import stages
from streams.demo.board import LINES, Board, Row, cores

LINE_EVERY_S = 4.0
DRAW_EVERY_S = 0.5
CHROME_ROWS = 9  # header, table head and rule, aggregate, footer
_HINTS = {
    "starting": "Real processes are coming up: broker, topics, workers, bridge, nodes.",
    "alone": "An online service runs alone here: its p99 now is what we have to defend.",
    "unprotected": "A greedy best-effort job runs beside it, and nobody limits it.",
    "protected": "Watch `allow` fall when `online` rises on the first row, and come back.",
    "outage": "No broker: the node goes on by its own law. Watch `allow` still follow.",
    "closing": "Stopping everything in order, and proving that nothing is left.",
}


@dataclass(slots=True)
class Status:
    """What the header says; kept by `run`."""

    phase: str = "starting"
    detail: str = ""
    broker: str = "-"
    workers: int = 0
    workers_ready: int = 0
    lag: int | None = None
    real_node: str = ""
    ends_mono_s: float | None = None
    notes: list[str] = field(default_factory=list)

    def left_s(self) -> str:
        """How long the phases still take, for people."""
        if self.ends_mono_s is None:
            return "until Ctrl-C"
        return f"{max(0, round(self.ends_mono_s - time.monotonic()))} s left"


class View:
    """Live on a terminal, else progress lines on ``stream``; `run` calls `draw` in a loop."""

    def __init__(self, board: Board, status: Status, stream: TextIO = sys.stderr) -> None:
        self._board, self._status, self._stream = board, status, stream
        self._console = Console(file=stream)
        self._live: Live | None = None
        self._last_line = 0.0
        self._last_phase = ""

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def draw(self) -> None:
        """Show the present state; on no terminal only every few seconds, or when a phase begins."""
        if self._live is not None:
            size = self._console.size
            self._live.update(
                frame(self._board, self._status, size.width, size.height), refresh=True
            )
            return
        now = time.monotonic()
        if now - self._last_line >= LINE_EVERY_S or self._status.phase != self._last_phase:
            self._last_line, self._last_phase = now, self._status.phase
            self._stream.write(line(self._board, self._status) + "\n")
            self._stream.flush()

    def say(self, text: str) -> None:
        """One line that stays, above the live table or among the progress lines."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


def line(board: Board, status: Status) -> str:
    """The whole state in one line."""
    parts = [f"demo {status.phase:<11} {status.left_s():>12}"]
    if status.detail:
        parts.append(status.detail)
    real = board.rows.get(status.real_node)
    if real is not None:
        parts.append(
            f"{real.node}: online {cores(real.online_milli)} allow {cores(real.allowed_milli)} "
            f"used {cores(real.best_effort_milli)}"
        )
    if board.rows:
        mid = "" if board.mid_milli is None else f"mid {cores(board.mid_milli)} "
        parts.append(
            f"{len(board.rows)} nodes: batch {cores(board.batch_milli)} {mid}lent "
            f"{cores(board.lent_milli)} cores, jobs done {board.jobs_in('done')}"
        )
    if not _whole(board):
        parts.append(f"stage {board.stage}")
    parts.append(f"workers {status.workers_ready}/{status.workers} lag {_known(status.lag)}")
    return " | ".join(parts)


def frame(board: Board, status: Status, width: int, height: int) -> Group:
    """The whole screen for a terminal of this size (columns, rows)."""
    wide = width >= 110
    head = Text(no_wrap=True, overflow="ellipsis")
    head.append("slackwater ", style="bold")
    head.append(f"{status.phase}", style="bold cyan")
    head.append(f" {status.left_s()}  broker {status.broker}  workers ")
    head.append(f"{status.workers_ready}/{status.workers}", style="green")
    head.append(f"  lag {_known(status.lag)}")
    rows = chosen(board, status.real_node, max(1, height - CHROME_ROWS))
    foot = Text(no_wrap=True, overflow="ellipsis", style="dim")
    foot.append(_HINTS.get(status.phase, "") if _whole(board) else stages.means(board.stage))
    return Group(
        head, Text(status.detail, no_wrap=True), _table(board, rows, wide), *_notes(status), foot
    )


def _whole(board: Board) -> bool:
    """Whether all of the loop may be seen: a stage before the last needs a word."""
    return board.stage in ("", "expand")


def _notes(status: Status) -> list[Text]:
    return [Text(note, no_wrap=True, overflow="ellipsis") for note in status.notes[-1:]]


def chosen(board: Board, real_node: str, room: int) -> list[Row]:
    """The real node first, then as many simulated ones as there is room for, by name."""
    others = [board.rows[name] for name in sorted(board.rows) if name != real_node]
    real = [board.rows[real_node]] if real_node in board.rows else []
    return [*real, *others][:room]


def _table(board: Board, rows: list[Row], wide: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), expand=False)
    table.add_column("node", no_wrap=True, max_width=20 if wide else 9)
    more = _more(board) if wide else []
    for name in ("online", *LINES, "batch", "allow", "used", "psi%", *more):
        table.add_column(name, justify="right", no_wrap=True, min_width=5)
    table.add_column(
        "last command", no_wrap=True, overflow="ellipsis", max_width=40 if wide else 15
    )
    for row in rows:
        table.add_row(*_cells(row, more))
    table.add_row(*_sum(board, more), style="bold")
    return table


def _more(board: Board) -> list[str]:
    """Columns for which only a wide terminal has room; mid where policy lends it."""
    return ["lent"] if board.mid_milli is None else ["mid", "lent"]


def _cells(row: Row, more: list[str]) -> list[str]:
    cells = [row.node, cores(row.online_milli)]
    cells += [cores(row.lines_milli.get(name)) for name in LINES]
    batch = cores(row.batch_milli) + ("" if row.new_work else "!")
    cells += [batch, cores(row.allowed_milli), cores(row.best_effort_milli)]
    cells.append(_known(row.pressure_percent))
    beside = {"mid": cores(row.mid_milli), "lent": cores(row.lent_in_all_milli)}
    return [*cells, *(beside[name] for name in more), row.said]


def _sum(board: Board, more: list[str]) -> list[str]:
    rows = board.rows.values()
    cells = [f"all {len(rows)}", cores(sum(row.online_milli or 0 for row in rows))]
    cells += [cores(sum(row.lines_milli.get(name, 0) for row in rows)) for name in LINES]
    limited = [row.allowed_milli for row in rows if row.allowed_milli >= 0]
    cells += [cores(board.batch_milli), cores(sum(limited))]
    cells += [cores(sum(row.best_effort_milli or 0 for row in rows)), "-"]
    beside = {"mid": cores(board.mid_milli), "lent": cores(board.lent_milli)}
    cells += [beside[name] for name in more]
    done, bad = board.jobs_in("done"), len(board.dead_letters)
    return [*cells, f"{done} jobs, {bad} bad"]


def _known(value: int | None) -> str:
    return "-" if value is None else str(value)
