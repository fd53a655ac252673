"""`slackwater node drill`: the steps as they are played, or as JSON; what killed drills left goes.

0: every step went as it must; 1: one did not, or the drill could not be played; 2: usage.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from dataclasses import asdict
from typing import Annotated

import orjson
import typer

from node_agent.cgroup.layout import Layout, detect
from node_agent.cgroup.paths import GroupPathError, normal_group
from node_agent.drill import place, steps
from node_agent.drill.steps import Step

INTERRUPTED = 130


def drill(
    under: Annotated[
        str | None, typer.Option(help="Make the groups below this one; default: at the top.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Play suppression, eviction for memory and the kernel's OOM killer on test pods, and tell."""
    if os.geteuid() != 0:
        raise PermissionError("a drill makes control groups: run it as root")
    try:
        home = None if under is None else normal_group(under)
    except GroupPathError as error:
        raise typer.BadParameter(str(error), param_hint="--under") from None
    layout = detect()
    cleared = place.clear(layout, home)
    busy = place.running(layout, home)
    if busy:
        raise place.NotOurs(f"{', '.join(busy)}: another drill is at it; wait for its end")
    played: list[Step] = []
    logging.disable(logging.CRITICAL)  # the agent's own words: what matters is in the steps
    try:
        code = asyncio.run(_perform(layout, home, played, show=not as_json))
    finally:
        logging.disable(logging.NOTSET)
    if as_json:
        said = {"ok": code == 0, "cleared": cleared, "steps": [asdict(step) for step in played]}
        typer.echo(orjson.dumps(said).decode())
    raise typer.Exit(code)


async def _perform(layout: Layout, under: str | None, played: list[Step], *, show: bool) -> int:
    """Play; the exit code. Ctrl-C ends it, and everything is taken away all the same."""
    task = asyncio.current_task()
    assert task is not None
    try:
        async for step in steps.play(layout, under):
            # The agent has set its own: SIGTERM stays its, Ctrl-C is ours.
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, task.cancel)
            played.append(step)
            if show:
                typer.echo(line(step))
    except asyncio.CancelledError:
        played.append(Step("interrupted", "failed", "everything was taken away"))
        return INTERRUPTED
    except steps.TROUBLE as error:
        played.append(Step("drill", "failed", str(error)))
    if show and played[-1].name == "drill":
        typer.echo(line(played[-1]))
    return 1 if any(step.outcome == "failed" for step in played) else 0


def line(step: Step) -> str:
    """One step as people read it."""
    took = "" if step.ms is None else f"{step.ms:.1f} ms"
    return f"{step.outcome:<7} {step.name:<10} {took:>10}  {step.text}"
