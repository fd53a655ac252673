"""What `slackwater policy` reads: policy files with their drop-ins, an account, a node's inventory.

Called by `streams.policy_cli`.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import yaml

from schemas import codec
from schemas import policy as policies
from schemas.errors import BadPolicy
from schemas.policy import Policy
from schemas.records import Inventory
from schemas.topics import full_name
from streams.account import Account
from streams.topic_reader import CannotRun, newest_of

PATTERN = "*.yaml"


def read_policy(file: Path, drop_ins: Path | None) -> tuple[str, Policy]:
    """(text, policy) of a file, and of the drop-ins in a folder laid over it in name order.

    Raises BadPolicy naming the file that is wrong, OSError for what cannot be read.
    """
    text = _text(file)
    if drop_ins is None:
        return text, policies.parse(text, str(file))
    if not drop_ins.is_dir():
        raise CannotRun(f"{drop_ins} is no folder: --drop-in takes one with {PATTERN} files")
    paths = [file, *sorted(drop_ins.glob(PATTERN))]
    whole, policy = policies.merged(
        (str(path), policies.load(_text(path), str(path))) for path in paths
    )
    written = yaml.safe_dump(whole, sort_keys=False, allow_unicode=True)
    return f"# Made of {', '.join(path.name for path in paths)}.\n{written}", policy


def read_account(file: Path | None) -> Account | None:
    """The account of the stage before. Raises CannotRun for what is none."""
    if file is None:
        return None
    try:
        return msgspec.json.decode(file.read_bytes(), type=Account)
    except msgspec.DecodeError as error:
        raise CannotRun(f"{file}: no account: {error}; see docs/policy.md") from None


def read_match(pairs: list[str]) -> dict[str, str]:
    """Labels from LABEL=VALUE; several must hold together."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise CannotRun(f"--canary {pair!r}: write LABEL=VALUE, or slackwater.io/node=NAME")
        found[key] = value
    return found


async def inventory_of(brokers: str, prefix: str, node: str) -> Inventory:
    """The newest inventory of a node. Raises CannotRun when there is none."""
    topic = full_name(prefix, "inventory")
    record = await newest_of(brokers, topic, node.encode())
    if record is None or record.value is None:
        raise CannotRun(f"no inventory of node {node} on {topic}: is its name right?")
    return codec.decode(Inventory, record.value)


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError:
        raise BadPolicy(f"{file}: not UTF-8 text") from None
