"""`slackwater policy`: check a policy file, publish it, show what is in force and its history."""

from __future__ import annotations

import asyncio
import getpass
from pathlib import Path

import msgspec
import orjson
import typer
import yaml

from schemas import policy as policies
from schemas.errors import BadPolicy
from schemas.records import PolicyRecord
from schemas.topics import full_name
from streams.topic_reader import CannotRun
from streams.topics_admin import DEFAULT_POLICY, policy_versions, publish
from streams.topics_cli import BROKERS, INSTALLED_PREFIX, hush

app = typer.Typer(help="Check and publish policies.", no_args_is_help=True)
NAME = typer.Option(DEFAULT_POLICY, "--name", help="Name of the policy.")


@app.callback()
def _quiet() -> None:
    """Check and publish policies."""
    hush()


@app.command()
def check(file: Path = typer.Argument(help="A policy as YAML.")) -> None:
    """Check a file and print its name and digest; a refusal names key and allowed range."""
    _, parsed = _read(file)
    typer.echo(f"{file}: good; policy {parsed.name}, digest {policies.digest(parsed)}")


@app.command()
def put(
    file: Path = typer.Argument(help="A policy as YAML."),
    brokers: str = BROKERS,
    prefix: str = INSTALLED_PREFIX,
    author: str = typer.Option("", help="Who publishes; default: the user of this shell."),
    note: str = typer.Option("", help="Why; kept in the history."),
) -> None:
    """Check a file and publish it as the next version; refused when nothing would change."""
    text, parsed = _read(file)
    record = asyncio.run(_put(brokers, prefix, text, parsed, author or _user(), note))
    typer.echo(f"policy {record.name} version {record.version}, digest {record.digest} published")


@app.command()
def show(
    brokers: str = BROKERS,
    prefix: str = INSTALLED_PREFIX,
    name: str = NAME,
    version: int | None = typer.Option(None, help="Default: the newest."),
    full: bool = typer.Option(False, "--full", help="With every default written out."),
) -> None:
    """Print the text of the newest version, or of one of the history."""
    versions = asyncio.run(policy_versions(brokers, prefix, name))
    chosen = [record for record in versions if version is None or record.version == version]
    if not chosen:
        raise CannotRun(_none(prefix, name, version))
    record = chosen[-1]
    typer.echo(f"# version {record.version}, digest {record.digest}, by {record.author or '?'}")
    text = record.text
    if full:
        said = msgspec.to_builtins(policies.parse(text, f"policy {name}"))
        text = yaml.safe_dump(said, sort_keys=False)
    typer.echo(text.rstrip("\n"))


@app.command()
def history(
    brokers: str = BROKERS,
    prefix: str = INSTALLED_PREFIX,
    name: str = NAME,
    as_json: bool = typer.Option(False, "--json", help="JSON lines, texts included."),
) -> None:
    """List the versions that the topic keeps, oldest first."""
    versions = asyncio.run(policy_versions(brokers, prefix, name))
    if not versions:
        raise CannotRun(_none(prefix, name, None))
    for record in versions:
        if as_json:
            typer.echo(orjson.dumps(record).decode())
        else:
            typer.echo(f"{record.version:4} {record.digest} {record.author:16} {record.note}")


async def _put(
    brokers: str, prefix: str, text: str, parsed: policies.Policy, author: str, note: str
) -> PolicyRecord:
    versions = await policy_versions(brokers, prefix, parsed.name)
    digest = policies.digest(parsed)
    newest = versions[-1] if versions else None
    if newest is not None and newest.digest == digest:
        raise CannotRun(
            f"policy {parsed.name} version {newest.version} says the same already "
            f"(digest {digest}): nothing published"
        )
    version = newest.version + 1 if newest is not None else 1
    record = PolicyRecord(parsed.name, version, digest, text, author, note)
    await publish(brokers, full_name(prefix, "policies"), parsed.name.encode(), record)
    return record


def _read(file: Path) -> tuple[str, policies.Policy]:
    try:
        text = file.read_text("utf-8")
    except UnicodeDecodeError:
        raise BadPolicy(f"{file}: not UTF-8 text") from None
    return text, policies.parse(text, str(file))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no entry for this user id, as in many containers
        return ""


def _none(prefix: str, name: str, version: int | None) -> str:
    which = "" if version is None else f" version {version}"
    return (
        f"no policy {name}{which} on {full_name(prefix, 'policies')}: "
        "`slackwater topics create` writes the default, `slackwater policy put FILE` another"
    )


if __name__ == "__main__":
    app()
