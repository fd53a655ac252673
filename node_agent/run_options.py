"""The options of `slackwater node run`, one name a kind; read by `node_agent.cli` alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Name = Annotated[str, typer.Option("--node", help="This machine's name; default: its host name.")]
Brokers = Annotated[
    str, typer.Option(envvar="SLACKWATER_BROKERS", help="Kafka, host:port[,host:port].")
]
Prefix = Annotated[
    str, typer.Option(envvar="SLACKWATER_PREFIX", help="What topic names begin with.")
]
Period = Annotated[str, typer.Option(help="How often to sample: 1s, 200ms.")]
Inventory = Annotated[
    Path | None, typer.Option(help="Pods, groups and facts of the node from this YAML file.")
]
Discover = Annotated[
    list[str] | None, typer.Option(help="Pattern of groups that are pods; may be repeated.")
]
BeRoot = Annotated[
    str | None, typer.Option(help="Best-effort root group, from the hierarchies' root.")
]
FloorMilli = Annotated[
    int, typer.Option(min=10, max=4_096_000, help="Best-effort work's floor, millicores.")
]
CpuIdle = Annotated[
    bool, typer.Option(help="Run best-effort groups as SCHED_IDLE where the kernel can.")
]
CriSocket = Annotated[
    Path | None,
    typer.Option(help="Container runtime's socket; default: a usual one, where it is there."),
]
DryRun = Annotated[bool, typer.Option(help="Measure, decide, ack; write nothing.")]

Kubepods = Annotated[
    bool | None,
    typer.Option(
        help="Look for kubelets' pods among the groups; default: without --inventory, or with"
        " --kubelet."
    ),
]
KubeletUrl = Annotated[
    str, typer.Option("--kubelet", help="Ask it for pods: https://127.0.0.1:10250.")
]
ApiServer = Annotated[
    str, typer.Option(help="Ask it for this node's labels, annotations and what is allocatable.")
]
KubeToken = Annotated[
    str, typer.Option(help="File of a token for both; default: the service account's.")
]
KubeCa = Annotated[
    str, typer.Option(help="File of who signs their certificates; default: the service account's.")
]
KubeCert = Annotated[str, typer.Option(help="File of a client certificate instead of a token.")]
KubeKey = Annotated[str, typer.Option(help="File of its key; default: the certificate's file.")]
KubeletName = Annotated[
    str, typer.Option(help="Name in the kubelet's certificate; default: the URL's host.")
]
KubeletInsecure = Annotated[
    bool, typer.Option("--kubelet-insecure", help="Believe the kubelet without its certificate.")
]
KubeletDir = Annotated[str, typer.Option(help="Where the kubelet keeps its state.")]
Nri = Annotated[
    Path | None,
    typer.Option(
        help="NRI socket of the container runtime (/var/run/nri/nri.sock): containers get what"
        " they asked for in extended resources before they start."
    ),
]
