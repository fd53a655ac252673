"""`slackwater node`: run the agent, undo what a crashed one left, show what stands.

The entry point `node` of `slackwater.commands`; `python -m node_agent` is the same. `run` checks
its options and then becomes `node_agent.process`, which is 10 MiB smaller without this module.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import orjson
import typer

from node_agent import run_options as opt
from node_agent.cgroup.layout import detect
from node_agent.cgroup.paths import normal_group
from node_agent.check.cli import check
from node_agent.drill.cli import drill
from node_agent.drill.place import clear_all
from node_agent.journal import Remembered, recall
from node_agent.options import AcceptUnsigned, KeyFolder, MetricsHost, MetricsPort, StateDir
from node_agent.settings import (
    DEFAULT_STATE_DIR,
    KUBELET_DIR,
    Kubernetes,
    Settings,
    parse_period,
    to_wire,
)
from node_agent.undo import Undone, forget, undo
from schemas.names import check_brokers, check_node_name
from schemas.topics import PREFIX

KERNEL_BOOT = Path("/proc/sys/kernel/random/boot_id")

app = typer.Typer(help="The agent of one machine: measure and obey.", no_args_is_help=True)
app.command("check")(check)
app.command("drill")(drill)


@app.callback()
def node() -> None:
    """The agent of one machine: measure and obey."""


@app.command()
def run(
    name: opt.Name = "",
    brokers: opt.Brokers = "127.0.0.1:9092",
    prefix: opt.Prefix = PREFIX,
    period: opt.Period = "1s",
    inventory: opt.Inventory = None,
    discover: opt.Discover = None,
    be_root: opt.BeRoot = None,
    kubepods: opt.Kubepods = None,
    kubelet: opt.KubeletUrl = "",
    api_server: opt.ApiServer = "",
    kube_token: opt.KubeToken = "",
    kube_ca: opt.KubeCa = "",
    kube_cert: opt.KubeCert = "",
    kube_key: opt.KubeKey = "",
    kubelet_name: opt.KubeletName = "",
    kubelet_insecure: opt.KubeletInsecure = False,
    kubelet_dir: opt.KubeletDir = KUBELET_DIR,
    state_dir: StateDir = DEFAULT_STATE_DIR,
    floor_milli: opt.FloorMilli = 10,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    cpu_idle: opt.CpuIdle = True,
    dry_run: opt.DryRun = False,
    cri_socket: opt.CriSocket = None,
    nri: opt.Nri = None,
    keys: KeyFolder = None,
    accept_unsigned: AcceptUnsigned = False,
) -> None:
    """Measure this machine, obey commands, and decide alone when nobody speaks."""
    settings = Settings(
        node=check_node_name(name or socket.gethostname()),
        brokers=check_brokers(brokers),
        prefix=prefix,
        state_dir=state_dir,
        period_ms=parse_period(period),
        inventory=inventory,
        roots=tuple(discover or ()),
        be_root=None if be_root is None else normal_group(be_root),
        kubepods=kubepods,
        kubernetes=Kubernetes(
            kubelet, api_server, kube_token, kube_ca, kube_cert, kube_key, kubelet_name,
            kubelet_insecure, kubelet_dir,
        ),
        floor_milli=floor_milli,
        metrics_port=metrics_port,
        metrics_host=metrics_host,
        use_idle=cpu_idle,
        dry_run=dry_run,
        cri_socket=cri_socket,
        nri=nri,
        keys=keys,
        accept_unsigned=accept_unsigned,
    )  # fmt: skip
    _become(settings)


@app.command("release-all")
def release_all(
    state_dir: StateDir = DEFAULT_STATE_DIR,
    json: Annotated[bool, typer.Option("--json", help="One line of JSON.")] = False,
) -> None:
    """Restore every original value from the journal; after a crash."""
    done = _undo(state_dir, json=json)
    raise typer.Exit(0 if done.whole else 1)


@app.command()
def uninstall(
    state_dir: StateDir = DEFAULT_STATE_DIR,
    json: Annotated[bool, typer.Option("--json", help="One line of JSON.")] = False,
) -> None:
    """Restore every original value, then remove what the agent keeps in its folder."""
    done = _undo(state_dir, json=json)
    if done.whole:
        forget(state_dir)
    raise typer.Exit(0 if done.whole else 1)


def _undo(state_dir: Path, *, json: bool) -> Undone:
    drills = clear_all(detect())
    _must_exist(state_dir)
    done = undo(state_dir, KERNEL_BOOT.read_text("ascii").strip().replace("-", ""))
    if json:
        said = {
            "released": list(done.refused),
            "refused": done.refused,
            "broken_lines": done.broken_lines,
            "drills": drills,
        }
        typer.echo(orjson.dumps(said))
        return done
    for each in drills:
        typer.echo(f"{each}: what a killed drill left is gone")
    for root, reasons in done.refused.items():
        typer.echo(f"{root}: {', '.join(reasons) or 'restored'}")
    if not done.refused:
        typer.echo("nothing to restore")
    if done.broken_lines:
        typer.echo(
            f"{done.broken_lines} broken lines in the journal of {state_dir}: some originals may "
            "be unknown; look at the groups yourself",
            err=True,
        )
    return done


@app.command()
def show(
    state_dir: StateDir = DEFAULT_STATE_DIR,
    json: Annotated[bool, typer.Option("--json", help="One line of JSON.")] = False,
) -> None:
    """What the journal says: value in force, last ceiling, originals, last commands."""
    _must_exist(state_dir)
    state = recall(state_dir)
    if json:
        typer.echo(orjson.dumps(_said(state)))
        return
    typer.echo(f"boot        {state.boot or 'never started'}")
    typer.echo(f"in force    {_milli(state.in_force_milli)}")
    typer.echo(f"granted     {_milli(state.granted_milli)}")
    for root, knobs in sorted(state.originals.items()):
        for knob, groups in sorted(knobs.items()):
            for group, values in sorted(groups.items()):
                typer.echo(f"original    {root} {knob} {group}: {values}")
    for knob, places in sorted(state.kept.items()):
        for place, kept in sorted(places.items()):
            typer.echo(f"original    {place} {knob}: {kept.values}")
    if state.broken_lines:
        typer.echo(f"broken      {state.broken_lines} lines of the journal cannot be read")
    for line in list(state.commands.values())[-10:]:
        typer.echo(f"command     {line['id']} {line['outcome']} {line['reason']}".rstrip())


def _become(settings: Settings) -> NoReturn:
    """Exec of `node_agent.process`."""
    # Tracebacks do without the columns of every instruction, and the process without their weight.
    lean = ["-X", "no_debug_ranges"]
    said = orjson.dumps(to_wire(settings)).decode()
    words = [sys.executable, *lean, "-m", "node_agent.process", said]
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # else numpy starts a thread for each CPU
    os.execv(sys.executable, words)  # noqa: S606  (this very program, no shell)


def _must_exist(state_dir: Path) -> None:
    """A mistyped folder must not look like a node that has nothing to restore."""
    if not state_dir.is_dir():
        raise FileNotFoundError(f"{state_dir}: no such folder; say --state-dir as for `run`")


def main(arguments: list[str]) -> int:
    """`python -m node_agent`: the exit code; what went wrong is one line on stderr."""
    try:
        code = typer.main.get_command(app).main(
            arguments, prog_name="slackwater node", standalone_mode=False
        )
    except typer.TyperException as error:
        text, code = error.format_message(), error.exit_code
    except (OSError, ValueError, RuntimeError) as error:
        text, code = str(error), 1
    else:
        return code if isinstance(code, int) else 0
    if text:
        typer.echo(f"slackwater node: {' '.join(text.split())}", err=True)
    return code


def _said(state: Remembered) -> dict[str, object]:
    return {
        "boot": state.boot,
        "kernel_boot": state.kernel_boot,
        "in_force_milli": state.in_force_milli,
        "granted_milli": state.granted_milli,
        "originals": state.originals,
        "kept": state.kept,
        "newest": state.newest,
        "commands": list(state.commands.values())[-10:],
        "broken_lines": state.broken_lines,
    }


def _milli(value: int | None) -> str:
    if value is None:
        return "unknown"
    return "no limit" if value < 0 else f"{value} milli"
