"""Command lines of compose file and manifests, held against the real commands; none is run."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import typer

from streams.cli import GROUP, load

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


@cache
def _commands() -> dict[str, EntryPoint]:
    """As this tree names them, whatever the environment was installed from."""
    said = tomllib.loads(PROJECT.read_text())["project"]["entry-points"][GROUP]
    return {name: EntryPoint(name, value, GROUP) for name, value in said.items()}


def parse(arguments: list[str]) -> dict[str, Any]:
    """Parse a command line as the real command would, without running it; its parameters.

    Raises typer.TyperException for what the command would refuse.
    """
    return _follow(arguments)[1]


def option_names(arguments: list[str]) -> set[str]:
    """Every option of the command that these arguments reach."""
    command, _ = _follow(arguments)
    return {name for one in command.params for name in one.opts}


def _follow(arguments: list[str]) -> tuple[Any, dict[str, Any]]:
    """The last command on the way, and all parameters met."""
    name, *rest = arguments
    command: Any = typer.main.get_command(load(_commands()[name]))
    parameters: dict[str, Any] = {}
    while True:
        with command.make_context(name, rest) as context:
            parameters |= context.params
            rest = [*context._protected_args, *context.args]
        if not hasattr(command, "commands") or (not rest and command.invoke_without_command):
            return command, parameters
        if not rest or rest[0] not in command.commands:
            raise typer.TyperException(f"{name}: no sub-command in {rest}")
        name, *rest = rest
        command = command.commands[name]
