"""The API server asked with plain JSON: fields that a typed client would drop are sent as written.

Used by tests of manifests: server-side apply, dry run, reviews of rights.
"""

from __future__ import annotations

import http.client
import json
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import yaml

APPLY = "application/apply-patch+yaml"


class Refused(Exception):
    """The API server said no; the message is its own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Api:
    """One user's connection, by the kubeconfig that `Cluster.kubeconfig` wrote."""

    def __init__(self, kubeconfig: Path) -> None:
        said = yaml.safe_load(kubeconfig.read_text())
        where, user = said["clusters"][0]["cluster"], said["users"][0]["user"]
        context = ssl.create_default_context(cafile=where["certificate-authority"])
        context.load_cert_chain(user["client-certificate"], user["client-key"])
        host = urlsplit(where["server"]).netloc
        self._connection = http.client.HTTPSConnection(host, timeout=30, context=context)
        self._kinds: dict[str, dict[str, dict[str, Any]]] = {}

    def close(self) -> None:
        self._connection.close()

    def call(
        self, method: str, path: str, body: Any = None, kind: str = "application/json"
    ) -> tuple[Any, list[str]]:
        """The answer and its warnings. Raises Refused."""
        said = None if body is None else json.dumps(body)
        self._connection.request(method, path, said, {"Content-Type": kind})
        answer = self._connection.getresponse()
        text = answer.read().decode()
        if answer.status >= http.client.BAD_REQUEST:
            raise Refused(answer.status, text)
        return json.loads(text), answer.headers.get_all("Warning") or []

    def kinds(self, version: str) -> dict[str, dict[str, Any]]:
        """What that version serves, by kind, as discovery says it; empty: it is not served."""
        if version not in self._kinds:
            try:
                found, _ = self.call("GET", _root(version))
            except Refused:
                found = {"resources": []}
            whole = [one for one in found["resources"] if "/" not in one["name"]]
            self._kinds[version] = {one["kind"]: one for one in whole}
        return self._kinds[version]

    def serves(self, manifest: dict[str, Any]) -> bool:
        return manifest["kind"] in self.kinds(manifest["apiVersion"])

    def apply(self, manifest: dict[str, Any], *, dry_run: bool) -> list[str]:
        """Server-side apply; unknown fields are refused. The warnings. Raises Refused."""
        query = {"fieldManager": "tests", "fieldValidation": "Strict", "force": "true"}
        if dry_run:
            query["dryRun"] = "All"
        path = f"{self.path(manifest)}?{urlencode(query)}"
        return self.call("PATCH", path, manifest, APPLY)[1]

    def there(self, manifest: dict[str, Any]) -> bool:
        """Whether it exists, and is not about to go."""
        try:
            found, _ = self.call("GET", self.path(manifest))
        except Refused as error:
            if error.status == http.client.NOT_FOUND:
                return False
            raise
        return "deletionTimestamp" not in found["metadata"]

    def delete(self, manifest: dict[str, Any]) -> None:
        self.call("DELETE", self.path(manifest))

    def path(self, manifest: dict[str, Any]) -> str:
        version, meta = manifest["apiVersion"], manifest["metadata"]
        resource = self.kinds(version)[manifest["kind"]]
        scope = f"/namespaces/{meta['namespace']}" if resource["namespaced"] else ""
        return f"{_root(version)}{scope}/{resource['name']}/{meta['name']}"


def _root(version: str) -> str:
    return f"/apis/{version}" if "/" in version else f"/api/{version}"
