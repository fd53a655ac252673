"""`slackwater node check`: the findings as a table or as JSON, and an exit code.

0: nothing essential is lacking; 1: something is; 2: the question was not understood.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import orjson
import typer

from node_agent import check as checks
from node_agent.cgroup.layout import Layout, LayoutError, detect
from node_agent.cgroup.paths import GroupPathError, normal_group
from node_agent.check.finding import Asked, Finding
from node_agent.options import KeyFolder, StateDir
from node_agent.pod_groups import PodGroups
from node_agent.settings import DEFAULT_STATE_DIR, KUBELET_DIR

WIDE = 19


def check(
    be_root: Annotated[
        str | None, typer.Option(help="Best-effort root; default: that of the kubelet's tree.")
    ] = None,
    state_dir: StateDir = DEFAULT_STATE_DIR,
    keys: KeyFolder = None,
    kubelet_dir: Annotated[Path, typer.Option(help="Where the kubelet keeps its state.")] = Path(
        KUBELET_DIR
    ),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Say what this machine lets the agent do, and what each lack disables. Changes nothing."""
    try:
        layout = detect()
    except LayoutError:
        layout = None
    try:
        root = _home(layout) if be_root is None else normal_group(be_root)
    except GroupPathError as error:
        raise typer.BadParameter(str(error), param_hint="--be-root") from None
    findings = checks.look(Asked(layout, root, state_dir, keys, kubelet_dir))
    good = checks.sufficient(findings)
    if as_json:
        said = {"sufficient": good, "findings": [asdict(each) for each in findings]}
        typer.echo(orjson.dumps(said).decode())
    else:
        for line in lines(findings):
            typer.echo(line)
    raise typer.Exit(0 if good else 1)


def lines(findings: list[Finding]) -> list[str]:
    """The table: a mark, the name, what was found, and what a lack disables."""
    found = []
    for each in findings:
        mark = "ok   " if each.good else "LACKS" if each.essential else "lacks"
        text = f"{mark} {each.name:<{WIDE}} {each.found}"
        found.append(
            text if each.good or not each.without else f"{text} -- without: {each.without}"
        )
    bad = [each.name for each in findings if each.essential and not each.good]
    found.append(
        f"essential and lacking: {', '.join(bad)}" if bad else "nothing essential is lacking"
    )
    return found


def _home(layout: Layout | None) -> str | None:
    if layout is None:
        return None
    groups = PodGroups(layout)
    groups.look(0)
    return next(filter(None, map(groups.best_effort, groups.trees)), None)
