"""Options that several commands of this shell have, said once. Used by `cli` and `simulate.cli`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

KeyFolder = Annotated[
    Path | None,
    typer.Option("--keys", envvar="SLACKWATER_KEYS", help="Folder of keys: check and sign by it."),
]
AcceptUnsigned = Annotated[
    bool,
    typer.Option("--accept-unsigned", help="With --keys: believe what is unsigned too, for now."),
]
StateDir = Annotated[
    Path, typer.Option(help="Journal, lock and last policies; one a node, kept over restarts.")
]
MetricsHost = Annotated[str, typer.Option(help="Address of /metrics.")]
MetricsPort = Annotated[
    int | None, typer.Option(min=0, max=65_535, help="Port of /metrics; 0: a free one.")
]
