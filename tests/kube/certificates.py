"""The cluster's certificates: an authority of its own, servers, users by name and group.

A user is who its certificate says: the common name is the user, the organisation its group.
Files lie under one folder, the keys readable by their owner only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True)
class Pair:
    """Two PEM files."""

    certificate: Path
    key: Path


class Authority:
    """Signs everything that the cluster's programs and users show each other."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        self._folder = folder
        self._authority = trustme.CA(organization_name="slackwater test cluster")
        self.certificate = folder / "authority.crt"
        self._authority.cert_pem.write_to_path(self.certificate)
        self._users: dict[tuple[str, str], Pair] = {}

    def server(self, name: str) -> Pair:
        """For a server on 127.0.0.1 or localhost."""
        return self._write(name, self._authority.issue_cert("127.0.0.1", "localhost"))

    def user(self, name: str, group: str = "") -> Pair:
        """For a client; the same files whenever the same user is asked for."""
        if (name, group) not in self._users:
            made = self._authority.issue_cert(
                "user.invalid", common_name=name, organization_name=group or None
            )
            self._users[name, group] = self._write(f"{len(self._users)}-{name}", made)
        return self._users[name, group]

    def _write(self, name: str, made: trustme.LeafCert) -> Pair:
        plain = re.sub(r"[^\w.-]", "-", name)
        pair = Pair(self._folder / f"{plain}.crt", self._folder / f"{plain}.key")
        pair.key.touch(mode=0o600, exist_ok=False)
        made.private_key_pem.write_to_path(pair.key)
        for blob in made.cert_chain_pems:
            blob.write_to_path(pair.certificate, append=True)
        return pair
