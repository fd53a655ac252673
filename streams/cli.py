"""The `slackwater` command: finds its sub-commands by entry point and loads only the one that runs.

Called by the console script. Sub-commands live in the shells that own them and are named in the
entry point group `slackwater.commands`; nothing here imports them, so that `slackwater node` on a
machine that installed only `slackwater[node]` never loads Faust, and no shell imports another.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.metadata import EntryPoint, entry_points, version

import typer

from streams.printable import of_error

GROUP = "slackwater.commands"
EXIT_INTERRUPTED = 130  # 128 + SIGINT, what shells expect
DEBUG_VARIABLE = "SLACKWATER_DEBUG"


@dataclass(frozen=True, slots=True)
class About:
    """What the root help says of a sub-command without importing it."""

    help: str
    extra: str  # what `pip install slackwater[...]` must name for it; "": the base is enough


COMMANDS: dict[str, About] = {
    "demo": About("Run the whole loop on this machine and show it at work.", "all"),
    "worker": About("Fold samples, decide, publish commands and capacity.", "streams"),
    "fleet": About("Second stage: what no single partition knows.", "streams"),
    "topics": About("Create, list, describe and read the topics.", ""),
    "keys": About("Make and change the keys that records are signed with.", ""),
    "policy": About("Check and publish policies.", ""),
    "slis": About("Say what a Prometheus knows of online services.", "streams"),
    "report": About("Make one page of a recording, or ask it in SQL.", "replay"),
    "account": About("Say what co-location came to: lent, used, harmed, earned.", "replay"),
    "explain": About("Say why a node, a pod or a command is as it is.", ""),
    "record": About("Keep what is on the topics as files; cut incidents out of them.", "replay"),
    "replay": About("Decide again what was recorded, and compare.", "replay"),
    "node": About("The agent of one machine: measure and obey.", "node"),
    "simulate": About("A simulated fleet driven by real traces.", "node"),
    "bridge": About("Tell the schedulers what may be lent.", "bridge"),
    "ledger": About("Show what is lent to whom.", "bridge"),
    "admission": About("Judge and complete pods as they are created.", "kubernetes"),
    "extender": About("Answer kube-scheduler: filter, score and bind by load.", "kubernetes"),
    "dev-broker": About("A real Kafka broker for development and tests.", ""),
}


class CommandUnavailable(Exception):
    """A sub-command that cannot be loaded; the message says what to install."""


def load(entry_point: EntryPoint) -> typer.Typer:
    """Import one sub-command. Raises CommandUnavailable when a package that it needs is missing."""
    name = entry_point.name
    try:
        app = entry_point.load()
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if entry_point.module == missing or entry_point.module.startswith(f"{missing}."):
            raise CommandUnavailable(f"'{name}' is not part of this installation") from error
        extra = COMMANDS[name].extra if name in COMMANDS else ""
        install = f"pip install slackwater[{extra}]" if extra else "pip install slackwater"
        raise CommandUnavailable(f"'{name}' needs the package {missing!r}: {install}") from error
    if not isinstance(app, typer.Typer):
        raise CommandUnavailable(f"'{name}': {entry_point.value} is not a typer.Typer")
    return app


def found() -> dict[str, EntryPoint]:
    """The installed sub-commands: known ones first, in the order of the table."""
    points = {point.name: point for point in entry_points(group=GROUP)}
    known = [name for name in COMMANDS if name in points]
    return {name: points[name] for name in [*known, *sorted(points.keys() - COMMANDS.keys())]}


def _stub(root: typer.Typer, entry_point: EntryPoint) -> None:
    """Register a name that passes its arguments, `--help` included, on to the real command."""
    about = COMMANDS.get(entry_point.name, About("", ""))

    @root.command(
        entry_point.name,
        help=about.help,
        add_help_option=False,
        context_settings={
            "allow_extra_args": True,
            "ignore_unknown_options": True,
            "allow_interspersed_args": False,
        },
    )
    def run(context: typer.Context) -> None:
        command = typer.main.get_command(load(entry_point))
        name = f"slackwater {entry_point.name}"
        raise typer.Exit(command.main(context.args, prog_name=name, standalone_mode=False) or 0)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"slackwater {version('slackwater')}")
        raise typer.Exit


def build() -> typer.Typer:
    """The root app with a stub for each installed sub-command."""
    root = typer.Typer(
        name="slackwater",
        help="Lends a fleet's idle capacity to batch work and takes it back in time.",
        no_args_is_help=True,
        add_completion=False,
    )

    @root.callback()
    def options(
        show: bool = typer.Option(
            False, "--version", callback=_show_version, is_eager=True, help="Show the version."
        ),
    ) -> None:
        del show  # the callback above has done its work

    for entry_point in found().values():
        _stub(root, entry_point)
    return root


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code; errors are one line on stderr.

    `SLACKWATER_DEBUG=1` shows the traceback instead.
    """
    try:
        command = typer.main.get_command(build())
        code = command.main(arguments, prog_name="slackwater", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE):
            raise
        return _complain(error)
    return code if isinstance(code, int) else 0


def _complain(error: Exception) -> int:
    """One line that says what is wrong; returns the exit code."""
    if isinstance(error, typer.TyperException):
        if not error.message:  # no arguments: the help has been shown
            return 2
        text, code = error.format_message(), error.exit_code
    else:
        expected = isinstance(error, (OSError, ValueError, CommandUnavailable))
        named = expected or getattr(error, "says_what_to_do", False)
        text = of_error(error) if named and str(error) else f"{type(error).__name__}: {error}"
        code = 1
    typer.echo(f"slackwater: {' '.join(text.split())}", err=True)
    return code


class WithoutPandas(MetaPathFinder):
    """Hides pandas from a command, which never needs it.

    Where it is installed, Arrow loads it for its first array: half a second more, and a Ctrl-C
    that comes meanwhile is lost.
    """

    def find_spec(self, fullname: str, *_: object) -> None:
        """Raise ModuleNotFoundError for pandas; all else is found as ever."""
        if fullname == "pandas":
            raise ModuleNotFoundError("no command of slackwater loads it", name=fullname)


def main() -> None:
    """Entry point of the console script."""
    sys.meta_path.insert(0, WithoutPandas())
    sys.exit(run(sys.argv[1:]))
