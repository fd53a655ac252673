"""Work that ends by itself when it is asked to, or will not; `workbench.worker` starts it."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from typing import Any

ENDED = 7


def work(config: dict[str, Any]) -> None:
    """In the worker. ``said``: a file that is made when it may be asked, and says when it was; each
    time it is asked beyond the first adds to it.
    """
    said = Path(config["said"])
    times = 0

    def end(_number: int, _frame: object) -> None:
        nonlocal times
        times += 1
        said.write_text("asked" + " again" * (times - 1))
        if not config["stubborn"]:
            sys.exit(ENDED)

    signal.signal(signal.SIGTERM, end)
    said.write_text("ready")
    while True:
        time.sleep(0.05)
