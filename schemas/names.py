"""Names that people type: node names and broker lists, checked before anything starts.

Called by the commands of every shell, and by `schemas.codec` for the names in records.
"""

from __future__ import annotations

import re

NODE_NAME = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_.:-]{0,252}", re.ASCII)
_MAX_PORT = 65_535


def check_node_name(name: str) -> str:
    """The name, if records may carry it. Raises ValueError saying what is allowed."""
    if not NODE_NAME.fullmatch(name):
        raise ValueError(
            f"node name {name!r:.80}: want 1 to 253 letters, digits and _ . : -, the first one a "
            "letter, a digit or _"
        )
    return name


def check_brokers(brokers: str) -> str:
    """The list, if each is host:port. Raises ValueError otherwise."""
    for broker in brokers.split(","):
        host, _, port = broker.strip().rpartition(":")
        if not host or (":" in host and not host.startswith("[")) or not _is_port(port):
            raise ValueError(f"--brokers {brokers!r:.80}: want host:port[,host:port]")
    return brokers


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and 0 < int(text[:6]) <= _MAX_PORT
