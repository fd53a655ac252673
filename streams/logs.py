"""Logging of the worker and the second stage: concise lines on stderr, libraries kept short.

Called once by `streams.worker_cli` and `streams.fleet_cli`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from time import monotonic

import typer

NOISY = ("aiokafka", "faust", "mode", "streams.transport", "streams.faust_app")
SAY_AGAIN_S = 10.0


class Sparing(logging.Filter):
    """A library's message is said once in `SAY_AGAIN_S`: a broker away is thousands of lines.

    Messages are told apart by their template, so a partition's number makes no difference.
    """

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._now = now
        self._said_s: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith(NOISY):
            return True
        key = (record.name, str(record.msg)[:80])
        now = self._now()
        if now - self._said_s.get(key, -SAY_AGAIN_S) < SAY_AGAIN_S:
            return False
        self._said_s[key] = now
        return True


def set_up(level: str) -> None:
    """Log from ``level`` on; the libraries only from warnings on, and sparingly."""
    wanted = level.upper()
    if wanted not in logging.getLevelNamesMapping():
        raise typer.BadParameter("--level is one of debug, info, warning, error")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname).1s %(name)s %(message)s"))
    if wanted != "DEBUG":
        handler.addFilter(Sparing())
        for name in NOISY:
            logging.getLogger(name).setLevel(logging.WARNING)
    logging.basicConfig(level=wanted, handlers=[handler])
