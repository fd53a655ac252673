"""`slackwater extender`: answer kube-scheduler. Entry point `extender` of `slackwater.commands`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from scheduler_bridge.extender.service import Extender
from scheduler_bridge.extender.settings import Annotating, ExtenderSettings, Resources
from scheduler_bridge.http import HttpSettings
from scheduler_bridge.kube.client import Kube, connect
from scheduler_bridge.settings import CPU_NAME, MEMORY_NAME, MID_CPU_NAME, MID_MEMORY_NAME
from scheduler_bridge.tls import TlsFiles
from schemas.names import check_brokers

app = typer.Typer(
    help="Answer kube-scheduler: filter, score and bind by load.",
    no_args_is_help=True,
    add_completion=False,
)
DEFAULT_PORT = 8643


@app.callback()
def extender() -> None:
    """Answer kube-scheduler: filter, score and bind by load."""


@app.command()
def run(
    brokers: Annotated[
        str, typer.Option(envvar="SLACKWATER_BROKERS", help="Kafka, host:port[,host:port].")
    ] = "127.0.0.1:9092",
    prefix: Annotated[
        str, typer.Option(envvar="SLACKWATER_PREFIX", help="What topic names begin with.")
    ] = "slackwater.",
    kubeconfig: Annotated[
        Path | None, typer.Option(help="How to reach the API server; none: as a pod does.")
    ] = None,
    context: Annotated[str | None, typer.Option(help="A context of the kubeconfig.")] = None,
    host: Annotated[str, typer.Option(help="Address to answer on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Its port; 0: a free one.")] = DEFAULT_PORT,
    certificate: Annotated[
        Path | None, typer.Option(help="PEM, with its chain; read again when it changes.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="PEM, of the certificate.")] = None,
    client_ca: Annotated[
        Path | None, typer.Option(help="PEM; only clients that it signed may ask.")
    ] = None,
    client_name: Annotated[
        list[str] | None, typer.Option(help="Common name of a client that may ask; again for more.")
    ] = None,
    bind: Annotated[
        bool, typer.Option(help="Answer /bind too, for schedulers with bindVerb.")
    ] = True,
    timeout_s: Annotated[float, typer.Option(help="Longest time to an answer.")] = 5.0,
    leave_s: Annotated[float, typer.Option(help="Not ready, still answering, before the end.")] = 0,
    scheduler: Annotated[
        str, typer.Option(help="Name of Kubernetes' own share in the ledger.")
    ] = "kubernetes",
    annotate: Annotated[
        bool, typer.Option("--annotate", help="Note scores on nodes, where no extender can be.")
    ] = False,
    annotations_per_s: Annotated[int, typer.Option(help="So many at most.")] = 5,
    cpu_name: Annotated[str, typer.Option(help="Resource name, integer milli.")] = CPU_NAME,
    memory_name: Annotated[str, typer.Option(help="Resource name, bytes.")] = MEMORY_NAME,
    mid_cpu_name: Annotated[str, typer.Option(help="The same of mid, milli.")] = MID_CPU_NAME,
    mid_memory_name: Annotated[str, typer.Option(help="And bytes.")] = MID_MEMORY_NAME,
) -> None:
    """Filter, score and bind pods by fresh load, until SIGTERM or Ctrl-C."""
    _log()
    try:
        settings = ExtenderSettings(
            brokers=check_brokers(brokers),
            prefix=prefix,
            http=HttpSettings(
                host, port, _tls(certificate, key, client_ca), frozenset(client_name or ()),
                timeout_s=timeout_s, leave_s=leave_s,
            ),
            resources=Resources(cpu_name, memory_name, mid_cpu_name, mid_memory_name),
            scheduler=scheduler,
            binds=bind,
            annotating=Annotating(writes_per_s=annotations_per_s) if annotate else None,
        )  # fmt: skip
    except ValueError as error:
        raise _refused(error) from None
    uvloop.run(_run(settings, partial(connect, kubeconfig, context)))
    typer.echo("extender: stopped", err=True)


async def _run(settings: ExtenderSettings, connected: Callable[[], Kube]) -> None:
    try:
        kube = connected()
    except ValueError as error:
        raise _refused(error) from None
    async with kube:
        try:
            service = Extender(settings, kube)
            await service.server.start()
        except ValueError as error:
            raise _refused(error) from None
        await service.run()


def _log() -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(name)s: %(message)s")
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    logging.getLogger("httpx2").setLevel(logging.WARNING)


def _refused(error: ValueError) -> typer.Exit:
    typer.echo(f"extender: {error}", err=True)
    return typer.Exit(2)


def _tls(certificate: Path | None, key: Path | None, client_ca: Path | None) -> TlsFiles | None:
    """Raises ValueError for half a pair."""
    if certificate is not None and key is not None:
        return TlsFiles(certificate, key, client_ca)
    if certificate is not None or key is not None or client_ca is not None:
        raise ValueError("TLS needs --certificate and --key, and --client-ca if clients show one")
    return None
