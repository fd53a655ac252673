"""`slackwater bridge evict`: a process of its own, so that it can be switched off alone.

It has an account of its own too, which may evict and not patch. Registered by
`scheduler_bridge.cli`; lightkube is loaded when it runs.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from scheduler_bridge.evictions.budget import Limits
from scheduler_bridge.evictions.settings import EvictorSettings
from schemas.names import check_brokers

Brokers = Annotated[
    str, typer.Option(envvar="SLACKWATER_BROKERS", help="Kafka, host:port[,host:port].")
]
Prefix = Annotated[
    str, typer.Option(envvar="SLACKWATER_PREFIX", help="What topic names begin with.")
]

Keys = Annotated[
    Path | None,
    typer.Option(envvar="SLACKWATER_KEYS", help="Folder with worker.pub: check commands."),
]
Port = Annotated[
    int | None,
    typer.Option(min=0, max=65_535, help="Port of /metrics, /healthz, /readyz; 0: a free one."),
]


def evict(
    brokers: Brokers = "127.0.0.1:9092",
    prefix: Prefix = "slackwater.",
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Of the API server; without one: this pod's account.")
    ] = None,
    context: Annotated[str | None, typer.Option(help="Of that kubeconfig.")] = None,
    lease_namespace: Annotated[
        str, typer.Option(help="Where the Lease lies; default: the account's namespace.")
    ] = "",
    keys: Keys = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="The API server judges, nobody goes.")
    ] = False,
    rate: Annotated[int, typer.Option(min=1, max=1000, help="Calls a second at most.")] = 10,
    window_s: Annotated[int, typer.Option(min=1, max=3600, help="What budgets count in.")] = 60,
    per_node: Annotated[int, typer.Option(min=1, max=1000, help="Evictions in a window.")] = 2,
    per_namespace: Annotated[int, typer.Option(min=1, max=100_000, help="The same.")] = 20,
    fleet: Annotated[int, typer.Option(min=1, max=100_000, help="The same, in all.")] = 60,
    node_rest_s: Annotated[
        int, typer.Option(min=0, max=3600, help="A node rests so long after one.")
    ] = 5,
    expire_s: Annotated[
        int, typer.Option(min=5, max=3600, help="A pod is tried for so long.")
    ] = 60,
    grace_s: Annotated[
        int | None, typer.Option(min=1, max=3600, help="Time to end; default: the pod's own.")
    ] = None,
    metrics_host: Annotated[str, typer.Option(help="Address of the metrics.")] = "127.0.0.1",
    metrics_port: Port = None,
) -> None:
    """Evict through the Kubernetes API what nodes hand over, until SIGTERM or Ctrl-C."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(name)s: %(message)s")
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    try:
        settings = EvictorSettings(
            brokers=check_brokers(brokers),
            prefix=prefix,
            kubeconfig=kubeconfig,
            context=context,
            lease_namespace=lease_namespace,
            keys=keys,
            per_s=rate,
            limits=Limits(per_node, per_namespace, fleet, window_s * 1000, node_rest_s * 1000),
            expire_ms=expire_s * 1000,
            grace_s=grace_s,
            dry_run=dry_run,
            metrics_host=metrics_host,
            metrics_port=metrics_port,
        )
        calls = uvloop.run(_run(settings))
    except (ValueError, OSError) as error:
        typer.echo(f"bridge evict: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(f"bridge evict: stopped; {calls} calls of the Eviction API", err=True)


async def _run(settings: EvictorSettings) -> int:
    try:
        from scheduler_bridge.evictions.loop import Evictor  # noqa: PLC0415  (loads lightkube)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"{error.name!r} is missing: pip install slackwater[bridge,kubernetes]"
        ) from error
    evictor = Evictor(settings)
    await evictor.run()
    return evictor.calls
