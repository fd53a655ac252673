"""The options of `slackwater bridge run` that belong to one sink, each with its type and help.

Used by the CLI. Which sink takes which: `scheduler_bridge.build.OWN_OPTIONS`.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer


class Fsync(StrEnum):
    """When a recorded patch counts as published."""

    always = "always"
    never = "never"


def _dry(help_: str, *names: str) -> Any:
    return typer.Option(*names, help=help_, rich_help_panel="Options of --sink dry-run")


def _kube(help_: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help_, rich_help_panel="Options of --sink kubernetes", **more)


Record = Annotated[Path, _dry("JSON lines of every patch; reread at the start.")]
FsyncWhen = Annotated[Fsync, _dry("always: published means on disk.")]
Quiet = Annotated[bool, _dry("Record patches, print none.", "--quiet")]

Kubeconfig = Annotated[Path | None, _kube("How to reach the API server; none: in-cluster.")]
Context = Annotated[str | None, _kube("Of the kubeconfig; none: its current one.", "--context")]
LeaseNamespace = Annotated[str | None, _kube("Where bridges elect their leader; none: our own.")]
LeaseName = Annotated[str, _kube("The Lease they elect it by.")]
LeaseSeconds = Annotated[int, _kube("Another leads after so long a silence.", min=1, max=300)]


def _ledger(help_: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help_, rich_help_panel="Options of the ledger", **more)


Yarn = Annotated[
    str | None, _ledger("ResourceManagers of a YARN that borrows too, http://host:8088[,...].")
]
YarnUser = Annotated[str, _ledger("Who we are to YARN: one of its administrators.")]
YarnWeight = Annotated[int, _ledger("YARN's part of what nobody asks for.", min=1, max=1000)]
KubernetesWeight = Annotated[int, _ledger("Kubernetes' part of it.", min=1, max=1000)]
