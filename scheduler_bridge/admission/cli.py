"""`slackwater admission`: the webhook, and what an operator needs around it. An entry point."""

from __future__ import annotations

import base64
import logging
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
import uvloop
import yaml

from scheduler_bridge.admission import certificates, configuration
from scheduler_bridge.admission.names import Resources
from scheduler_bridge.admission.rules_file import read_rules
from scheduler_bridge.admission.service import Admission, Settings, settle_memory
from scheduler_bridge.http import HttpSettings
from scheduler_bridge.kube.client import connect
from scheduler_bridge.settings import CPU_NAME, MEMORY_NAME, MID_CPU_NAME, MID_MEMORY_NAME
from scheduler_bridge.tls import TlsFiles
from schemas.errors import BadPolicy

app = typer.Typer(
    help="Judge and complete pods as they are created.",
    no_args_is_help=True,
    add_completion=False,
)
RulesPath = Annotated[Path, typer.Option(envvar="SLACKWATER_ADMISSION_RULES", help="YAML file.")]
BatchCpu = Annotated[str, typer.Option(help="Resource name, integer milli.")]
BatchMemory = Annotated[str, typer.Option(help="Resource name, bytes.")]
MidCpu = Annotated[str, typer.Option(help="The same of mid, milli.")]
MidMemory = Annotated[str, typer.Option(help="And bytes.")]
Namespace = Annotated[str, typer.Option(help="Where the webhook runs.")]


class Recalls(StrEnum):
    """What is done about use beyond a share."""

    evict = "evict"
    tell = "tell"


@app.callback()
def admission() -> None:
    """Judge and complete pods as they are created."""


@app.command()
def run(
    rules: RulesPath,
    tls_certificate: Annotated[Path, typer.Option(help="PEM, read again when it changes.")],
    tls_key: Annotated[Path, typer.Option(help="PEM.")],
    client_ca: Annotated[
        Path | None, typer.Option(help="PEM; only clients that it signed may ask.")
    ] = None,
    client_name: Annotated[
        list[str] | None, typer.Option(help="Common name that may ask; with --client-ca.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to answer on.")] = "0.0.0.0",  # noqa: S104
    port: Annotated[int, typer.Option(help="0: a free one.")] = 8443,
    kubeconfig: Annotated[Path | None, typer.Option(help="Default: in-cluster.")] = None,
    context: Annotated[str | None, typer.Option(help="Of the kubeconfig.")] = None,
    lease_namespace: Annotated[str, typer.Option(help="Of the leader's Lease.")] = "slackwater",
    recalls: Annotated[
        Recalls, typer.Option(help="evict: over-use is called back; tell: only said.")
    ] = Recalls.evict,
    leave_s: Annotated[float, typer.Option(help="Answer on so long after SIGTERM.")] = 5.0,
    cpu_name: BatchCpu = CPU_NAME,
    memory_name: BatchMemory = MEMORY_NAME,
    mid_cpu_name: MidCpu = MID_CPU_NAME,
    mid_memory_name: MidMemory = MID_MEMORY_NAME,
) -> None:
    """Answer the API server, until SIGTERM or Ctrl-C; the leader lets gangs go and calls back."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(name)s: %(message)s")
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    try:
        names = Resources(cpu_name, memory_name, mid_cpu_name, mid_memory_name)
        settings = Settings(
            rules,
            HttpSettings(
                host=host,
                port=port,
                tls=TlsFiles(tls_certificate, tls_key, client_ca),
                client_names=frozenset(client_name or ()),
                leave_s=leave_s,
            ),
            lease_namespace,
            names,
            recall=recalls is Recalls.evict,
        )
        uvloop.run(_run(settings, kubeconfig, context))
    except (BadPolicy, ValueError, OSError) as error:
        typer.echo(f"admission: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo("admission: stopped", err=True)


@app.command()
def check(rules: Annotated[list[Path], typer.Argument(help="YAML files.")]) -> None:
    """Say whether rules are good, or what is wrong and what is allowed."""
    for path in rules:
        try:
            found = read_rules(path)
        except (BadPolicy, OSError) as error:
            typer.echo(f"admission: {error}", err=True)
            raise typer.Exit(1) from None
        typer.echo(
            f"{path}: good ({found.digest()}): {len(found.profiles)} profiles, "
            f"{len(found.quotas)} quotas"
        )


@app.command("certificates")
def make_certificates(
    folder: Annotated[Path, typer.Argument(help="Gets ca.crt, tls.crt and tls.key.")],
    service: Annotated[str, typer.Option(help="Name of the Service.")] = "slackwater-admission",
    namespace: Namespace = "slackwater",
    days: Annotated[int, typer.Option(help="Until they end.")] = 365,
) -> None:
    """Make certificates of our own, where no cert-manager does."""
    try:
        certificates.make(folder, certificates.service_names(service, namespace), days)
    except (ValueError, OSError) as error:
        typer.echo(f"admission: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(f"{folder}: good for {days} days; renew before, and print the configuration anew")


@app.command("configuration")
def print_configuration(
    ca: Annotated[
        Path | None, typer.Option(help="PEM of who signed us; without: cert-manager adds it.")
    ] = None,
    service: Annotated[str, typer.Option(help="Name of the Service.")] = "slackwater-admission",
    namespace: Namespace = "slackwater",
    service_port: Annotated[int, typer.Option(min=1, max=65_535, help="Of the Service.")] = 443,
    cpu_name: BatchCpu = CPU_NAME,
    memory_name: BatchMemory = MEMORY_NAME,
    mid_cpu_name: MidCpu = MID_CPU_NAME,
    mid_memory_name: MidMemory = MID_MEMORY_NAME,
) -> None:
    """Print the webhook configurations to apply."""
    target = {"name": service, "namespace": namespace, "port": service_port}
    client: dict[str, object] = {"service": target}
    try:
        if ca is not None:
            client["caBundle"] = base64.b64encode(ca.read_bytes()).decode()
        names = Resources(cpu_name, memory_name, mid_cpu_name, mid_memory_name)
    except (ValueError, OSError) as error:
        typer.echo(f"admission: {error}", err=True)
        raise typer.Exit(2) from None
    both = configuration.configurations(client, names, namespace)
    typer.echo(yaml.safe_dump_all(both, sort_keys=False), nl=False)


async def _run(settings: Settings, kubeconfig: Path | None, context: str | None) -> None:
    async with connect(kubeconfig, context) as kube:
        await Admission(settings, kube, settle_memory).run()
