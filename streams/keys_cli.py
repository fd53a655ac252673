"""`slackwater keys`: make, show and change the keys that records are signed with.

The entry point `keys` of the group `slackwater.commands`. Files and their forms: `schemas.keys`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import orjson
import typer

from schemas import keys
from schemas.keys import BadKeys, Keys
from schemas.names import check_node_name
from streams import keyring

app = typer.Typer(help="Keys of workers and nodes.", no_args_is_help=True)
FOLDER = Path("/etc/slackwater/keys")
Folder = Annotated[
    Path, typer.Option("--keys", envvar="SLACKWATER_KEYS", help="The folder of keys.")
]
KeyId = Annotated[str, typer.Argument(help="Its id, as `show` says it.")]
_SECRET = {keys.WORKER_KEY, keys.NODES_KEY, keys.NODE_KEY}


@app.command()
def new(
    folder: Folder = FOLDER,
    once: Annotated[bool, typer.Option("--once", help="Where there are some, make none.")] = False,
) -> None:
    """Make keys for workers and nodes; where there are some, a second of each to change to."""
    if once and (there := keyring.there(folder)) is not None:
        _say(there)
        return
    held = keyring.make(folder)
    _say(held)
    if len(held.of(keys.WORKER_KEY)) > 1:
        typer.echo("second keys made: hand out worker.pub and node.key again, then `keys use ID`")
    else:
        typer.echo(f"start workers with --keys {folder}; for each node: keys node NAME --to FOLDER")


@app.command()
def node(
    name: Annotated[str, typer.Argument(help="The node's name.")],
    to: Annotated[Path, typer.Option(help="Where to put what the node needs.")],
    folder: Folder = FOLDER,
) -> None:
    """Make the folder that one node gets: its own key and the workers' public ones."""
    _say(keyring.for_node(folder, check_node_name(name), to))


@app.command()
def show(
    folder: Folder = FOLDER,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Say which keys are there and which one signs; never a secret."""
    held = keyring.load(folder)
    if as_json:
        typer.echo(orjson.dumps(_said(held)).decode())
    else:
        _say(held)
    if not held.files:
        raise BadKeys(f"{folder}: no keys in it; make some: slackwater keys new --keys {folder}")


@app.command()
def use(key: KeyId, folder: Folder = FOLDER) -> None:
    """Sign with this key from the next start on; the other one is still accepted."""
    _say(keyring.use(folder, _id(key)))


@app.command()
def drop(key: KeyId, folder: Folder = FOLDER) -> None:
    """Accept this key no longer."""
    _say(keyring.drop(folder, _id(key)))


def _id(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise BadKeys(f"{text!r:.40} is no id: 16 hex digits, see `keys show`") from None


def _say(held: Keys) -> None:
    for row in _said(held):
        role = "signs" if row["signs"] else "accepted"
        typer.echo(f"{row['id']}  {row['file']:<11} {role:<8} {row['node']}".rstrip())


def _said(held: Keys) -> list[dict[str, str | bool]]:
    return [
        {
            "file": name,
            "id": key.id.hex(),
            "signs": name in _SECRET and place == 0,
            "node": key.node,
        }
        for name, found in held.files.items()
        for place, key in enumerate(found)
    ]
