"""The explicit list of sinks, what each takes on the command line, and how each is made.

Called by the CLI. A sink's module is loaded when it is chosen, with the packages that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from scheduler_bridge.sinks.dry_run import DryRun, Fsync
from scheduler_bridge.sinks.yarn_alone import YarnAlone

if TYPE_CHECKING:
    from scheduler_bridge.metrics import Metrics
    from scheduler_bridge.sinks import Sink


class SinkName(StrEnum):
    """Who can be told."""

    dry_run = "dry-run"
    kubernetes = "kubernetes"
    yarn = "yarn"


OWN_OPTIONS: dict[SinkName, frozenset[str]] = {
    SinkName.dry_run: frozenset({"record", "fsync", "quiet"}),
    SinkName.kubernetes: frozenset(
        {"kubeconfig", "context", "lease_namespace", "lease_name", "lease_s"}
    ),
    SinkName.yarn: frozenset(),
}
"""Options that belong to one sink; all others are everyone's."""


@dataclass(frozen=True, slots=True)
class Options:
    """What sinks are made of. ``names``: of batch CPU and memory, mid CPU and memory."""

    names: tuple[str, str, str, str]
    record: Path
    fsync: Fsync
    echo: Callable[[str], None]
    kubeconfig: Path | None
    context: str | None
    lease_namespace: str | None
    lease_name: str
    lease_s: int


def check_options(sink: SinkName, given: Collection[str]) -> None:
    """Raise ValueError for an option that was given and belongs to another sink only."""
    strange = {name for own in OWN_OPTIONS.values() for name in own} - OWN_OPTIONS[sink]
    for name in sorted(strange & set(given)):
        takers = " or ".join(other for other, own in OWN_OPTIONS.items() if name in own)
        option = "--" + name.replace("_", "-")
        raise ValueError(
            f"{option} belongs to --sink {takers}, this is --sink {sink}; leave it out"
        )


def make(sink: SinkName, options: Options, metrics: Metrics) -> Sink:
    """The chosen sink. Raises ValueError or OSError for what cannot work."""
    if sink is SinkName.dry_run:
        return DryRun(
            options.record, options.echo, *options.names[:2], options.fsync,
            mid_names=options.names[2:],
        )  # fmt: skip
    if sink is SinkName.yarn:
        return YarnAlone()
    return _kubernetes(options, metrics)


def _kubernetes(options: Options, metrics: Metrics) -> Sink:
    try:
        from scheduler_bridge.kube.client import connect  # noqa: PLC0415
        from scheduler_bridge.kube.election import Election, identity  # noqa: PLC0415
        from scheduler_bridge.sinks.kubernetes import Kubernetes  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ValueError(
            f"--sink kubernetes needs {error.name!r}: pip install slackwater[bridge,kubernetes]"
        ) from error
    kube = connect(options.kubeconfig, options.context)
    namespace = options.lease_namespace or kube.namespace
    election = Election(kube, namespace, options.lease_name, identity(), lease_s=options.lease_s)
    return Kubernetes(kube, election, options.names, metrics)
