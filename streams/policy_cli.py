"""`slackwater policy`: check a policy, publish it in stages, show what holds where, go back."""

from __future__ import annotations

import asyncio
import getpass
from pathlib import Path
from typing import Any

import msgspec
import orjson
import typer
import yaml

from schemas import policy as policies
from schemas.policy import Policy
from schemas.records import PolicyRecord
from schemas.topics import full_name
from streams import policy_gate, policy_text
from streams.policy_files import inventory_of, read_account, read_match, read_policy
from streams.policy_gate import Unchanged, Wish
from streams.topic_reader import CannotRun
from streams.topics_admin import DEFAULT_POLICY, policy_versions, publish
from streams.topics_cli import BROKERS, INSTALLED_PREFIX, hush

app = typer.Typer(help="Check and publish policies.", no_args_is_help=True)
FILE = typer.Argument(help="A policy as YAML.")
NAME = typer.Option(DEFAULT_POLICY, "--name", help="Name of the policy.")
DROP_IN = typer.Option(None, "--drop-in", help="A folder whose *.yaml are laid over the file.")
AS_JSON = typer.Option(False, "--json", help="One JSON document instead of words.")
AUTHOR = typer.Option("", "--author", help="Who; default: the user of this shell.")
NOTE = typer.Option("", "--note", help="Why; kept in the history.")
FORCE = typer.Option(False, "--force", help="Overrule a refusal; needs a --note.")
ACCOUNT = typer.Option(
    None, "--account", help="What the pilot came to, as `slackwater account -o` writes it."
)
DIFFERS = 1


@app.callback()
def _quiet() -> None:
    """Check and publish policies."""
    hush()


@app.command()
def check(file: Path = FILE, drop_in: Path | None = DROP_IN, as_json: bool = AS_JSON) -> None:
    """Check a file and print its name and digest; a refusal names key and allowed range."""
    _, policy = read_policy(file, drop_in)
    digest = policies.digest(policy)
    if as_json:
        _print({"file": str(file), "name": policy.name, "digest": digest})
    else:
        typer.echo(f"{file}: good; policy {policy.name}, digest {digest}")


@app.command()
def put(
    file: Path = FILE,
    brokers: str = BROKERS,
    prefix: str = INSTALLED_PREFIX,
    drop_in: Path | None = DROP_IN,
    canary: list[str] = typer.Option(
        [], "--canary", help="LABEL=VALUE: only on nodes with it, until promoted; repeatable."
    ),
    account: Path | None = ACCOUNT,
    force: bool = FORCE,
    only_new: bool = typer.Option(
        False, "--only-new", help="Nothing that was published before, whatever holds now."
    ),
    author: str = AUTHOR,
    note: str = NOTE,
    as_json: bool = AS_JSON,
) -> None:
    """Check a file and publish it as the next version, on a canary first.

    Refused: a change of the whole fleet at once, and an expansion whose account does not meet
    rollout.pilot.exit.
    The first version of a policy needs no canary. What holds already is not published again.
    """
    text, policy = read_policy(file, drop_in)
    who = author or _user()
    found = read_account(account)
    wish = Wish(who, note, read_match(canary), force, found, only_new)
    versions = _versions(brokers, prefix, policy.name)
    try:
        record = policy_gate.change(versions, text, policy, wish)
    except Unchanged as same:
        if as_json:
            _print(same.record)
        else:
            typer.echo(str(same))
        return
    _publish(brokers, prefix, record, as_json)


@app.command()
def promote(
    brokers: str = BROKERS,
    prefix: str = INSTALLED_PREFIX,
    name: str = NAME,
    account: Path | None = ACCOUNT,
    force: bool = FORCE,
    author: str = AUTHOR,
    note: str = NOTE,
    as_json: bool = AS_JSON,
) -> None:
    """Put what the canary runs on the whole fleet, as the next version."""
    wish = Wish(author or _user(), note, forced=force, account=read_account(account))
    record = policy_gate.promotion(_some(brokers, prefix, name), wish)
    _publish(brokers, prefix, record, as_json)


@app.command()
def rollback(
    brokers: str = BROKERS,
    prefix: str = INSTALLED_PREFIX,
    name: str = NAME,
    to: int | None = typer.Option(None, help="Default: what holds outside the canary, or before."),
    author: str = AUTHOR,
    note: str = NOTE,
    as_json: bool = AS_JSON,
) -> None:
    """Put an earlier version on the whole fleet at once, as the next version; never refused."""
    wish = Wish(author or _user(), note)
    record = policy_gate.going_back(_some(brokers, prefix, name), to, wish)
    _publish(brokers, prefix, record, as_json)


@app.command()
def show(
    node: str | None = typer.Argument(None, help="What holds on this node, all layers laid."),
    brokers: str = BROKERS,
    prefix: str = INSTALLED_PREFIX,
    name: str = NAME,
    version: int | None = typer.Option(None, help="Default: the newest."),
    full: bool = typer.Option(False, "--full", help="With every default written out."),
    as_json: bool = AS_JSON,
) -> None:
    """Print the text of the newest version or of one of the history, or what holds on a node."""
    record = _chosen(_versions(brokers, prefix, name), prefix, name, version)
    if node is not None:
        inventory = asyncio.run(inventory_of(brokers, prefix, node))
        found = policy_text.on_node(record, inventory)
        typer.echo(policy_text.dumped(found) if as_json else policy_text.node_text(found))
        return
    if as_json:
        _print(record)
        return
    text = record.text
    if full:
        said = msgspec.to_builtins(policies.parse(text, f"policy {name}"))
        text = yaml.safe_dump(said, sort_keys=False)
    typer.echo(policy_text.headline(record))
    typer.echo(text.rstrip("\n"))


@app.command()
def diff(
    one: str | None = typer.Argument(None, help="A version or a file; default: what is in force."),
    other: str | None = typer.Argument(None, help="A version or a file; default: the newest."),
    brokers: str = BROKERS,
    prefix: str = INSTALLED_PREFIX,
    name: str = NAME,
    as_json: bool = AS_JSON,
) -> None:
    """Print each key that differs, old and new, defaults included; exit 1 when any does.

    Without arguments: the version before beside the newest, or what holds outside a canary
    beside what holds in it. With one: what is in force beside it.
    """
    versions = _versions(brokers, prefix, name)
    before, after = _two(versions, prefix, name, one, other)
    changes = policy_text.differences(before, after)
    if as_json:
        _print([{"key": key, "old": old, "new": new} for key, old, new in changes])
    else:
        typer.echo("\n".join(f"{key}: {old} -> {new}" for key, old, new in changes) or "the same")
    if changes:
        raise typer.Exit(DIFFERS)


@app.command()
def history(
    brokers: str = BROKERS,
    prefix: str = INSTALLED_PREFIX,
    name: str = NAME,
    as_json: bool = typer.Option(False, "--json", help="JSON lines, texts included."),
) -> None:
    """List the versions that the topic keeps, oldest first."""
    for record in _some(brokers, prefix, name):
        typer.echo(orjson.dumps(record).decode() if as_json else policy_text.line(record))


def _two(
    versions: list[PolicyRecord], prefix: str, name: str, one: str | None, other: str | None
) -> tuple[Policy, Policy]:
    newest = policy_gate.newest_good(versions)
    if one is None:
        if newest is None:
            raise CannotRun(_none(prefix, name, None))
        if newest.canary:
            both = policies.published(newest)
            return both.policy, both.trial or both.policy
        before = [each for each in versions if each.version < newest.version]
        older = policy_gate.newest_good(before)
        return _policy(older) if older is not None else Policy(), _policy(newest)
    first = _named(versions, prefix, name, one)
    if other is not None:
        return first, _named(versions, prefix, name, other)
    if newest is None:
        raise CannotRun(_none(prefix, name, None))
    return policies.published(newest).policy, first


def _named(versions: list[PolicyRecord], prefix: str, name: str, said: str) -> Policy:
    if said.isdigit():
        return _policy(_chosen(versions, prefix, name, int(said)))
    return read_policy(Path(said), None)[1]


def _policy(record: PolicyRecord) -> Policy:
    return policies.parse(record.text, f"policy {record.name} version {record.version}")


def _publish(brokers: str, prefix: str, record: PolicyRecord, as_json: bool) -> None:
    topic = full_name(prefix, "policies")
    asyncio.run(publish(brokers, topic, record.name.encode(), record))
    if as_json:
        _print(record)
        return
    where = policy_text.where(record)
    typer.echo(
        f"policy {record.name} version {record.version}, digest {record.digest} published{where}"
    )


def _versions(brokers: str, prefix: str, name: str) -> list[PolicyRecord]:
    return asyncio.run(policy_versions(brokers, prefix, name))


def _some(brokers: str, prefix: str, name: str) -> list[PolicyRecord]:
    versions = _versions(brokers, prefix, name)
    if not versions:
        raise CannotRun(_none(prefix, name, None))
    return versions


def _chosen(
    versions: list[PolicyRecord], prefix: str, name: str, version: int | None
) -> PolicyRecord:
    chosen = [record for record in versions if version is None or record.version == version]
    if not chosen:
        raise CannotRun(_none(prefix, name, version))
    return chosen[-1]


def _print(document: Any) -> None:
    typer.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())


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
