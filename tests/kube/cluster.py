"""The whole cluster: etcd, API server, controllers and scheduler of one folder, and its users.

All methods block; the programs die with us. A test that harms a component starts it again.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml
from lightkube import AsyncClient, KubeConfig

from streams.dev_broker.process import free_port, lock_folder
from tests.kube import commands
from tests.kube.certificates import Authority
from tests.kube.component import Component, PortTakenError
from tests.kube.errors import KubeError
from tests.kube.programs import Programs

ADMIN = ("admin", "system:masters")
ATTEMPTS = 3  # a free port may be taken by someone else before a program binds it
ANSWER_WITHIN_S = 2.0  # asked again when it was too busy
LOCK_WITHIN_S = 2.0


class Cluster:
    """`with Cluster(folder, programs) as cluster:`; `folder` keeps data, logs and certificates."""

    def __init__(self, folder: Path, programs: Programs) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        lock = lock_folder(folder, LOCK_WITHIN_S)
        if lock is None:
            raise KubeError(f"another cluster uses {folder}: stop it, or choose another folder")
        self._lock = lock
        self.folder = folder
        self._programs = programs
        self._authority = Authority(folder / "certificates")
        self._own = {
            name: self._authority.server(name)
            for name in ("api-server", "controller-manager", "scheduler")
        }
        self._accounts = self._authority.server("accounts").key
        self._scheduling: dict[str, Any] = {}
        self._ports: dict[str, int] = {}
        self.etcd = self._component("etcd", self._etcd_command, self._etcd_ready)
        self.api_server = self._component("api-server", self._api_server_command)
        self.controller_manager = self._component("controller-manager", self._manager_command)
        self.scheduler = self._component("scheduler", self._scheduler_command)

    @property
    def url(self) -> str:
        """Where the API server answers; kept over restarts."""
        return f"https://{commands.HOST}:{self._ports['api-server']}"

    @property
    def components(self) -> tuple[Component, ...]:
        """In the order in which they start."""
        return self.etcd, self.api_server, self.controller_manager, self.scheduler

    def start(self) -> None:
        """Start all on free ports. Raises KubeError, with nothing left running."""
        for attempt in range(1, ATTEMPTS + 1):
            names = ("etcd", "etcd-peer", *self._own)
            self._ports = {name: free_port(commands.HOST) for name in names}
            try:
                for component in self.components:
                    component.start()
            except PortTakenError:
                self.stop()
                if attempt == ATTEMPTS:
                    raise
            except BaseException:
                self.stop()
                raise
            else:
                return

    def stop(self) -> None:
        """Stop all, the last one first; the folder stays."""
        for component in reversed(self.components):
            component.stop()

    def close(self) -> None:
        """Stop, and give up the folder."""
        self.stop()
        os.close(self._lock)

    def schedule(self, **settings: Any) -> None:
        """Restart the scheduler with these fields of its configuration, such as `extenders`."""
        self._scheduling = settings
        self.scheduler.restart()

    def compact(self) -> None:
        """Forget the past in etcd: a watch from before now is answered 410, once the API server's
        own cache is gone too (`api_server.restart()`).
        """
        header = self._etcd_call("/v3/kv/range", b'{"key": "AA=="}')["header"]
        revision = header["revision"]
        self._etcd_call("/v3/kv/compaction", f'{{"revision": "{revision}"}}'.encode())

    def kubeconfig(self, user: str = ADMIN[0], group: str = ADMIN[1]) -> Path:
        """A file by which that user reaches the API server."""
        pair = self._authority.user(user, group)
        path = pair.certificate.with_suffix(".kubeconfig")
        said = commands.kubeconfig(self.url, self._authority.certificate, user, pair)
        path.write_text(yaml.safe_dump(said))
        return path

    def client(self, user: str = ADMIN[0], group: str = ADMIN[1]) -> AsyncClient:
        """A client of that user; the caller closes it."""
        config = KubeConfig.from_file(self.kubeconfig(user, group))
        return AsyncClient(config.get(), trust_env=False)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _component(
        self, name: str, command: Callable[[], list[str]], ready: Callable[[], bool] | None = None
    ) -> Component:
        log = self.folder / f"{name}.log"
        return Component(name, command, ready or (lambda: self._answers(name)), log, self._lock)

    def _etcd_command(self) -> list[str]:
        data = self.folder / "etcd"
        ports = self._ports["etcd"], self._ports["etcd-peer"]
        return commands.etcd(self._programs.etcd, data, *ports)

    def _api_server_command(self) -> list[str]:
        return commands.api_server(
            self._programs.api_server,
            self._ports["api-server"],
            self._ports["etcd"],
            self._authority.certificate,
            self._own["api-server"],
            self._accounts,
        )

    def _manager_command(self) -> list[str]:
        return commands.controller_manager(
            self._programs.controller_manager,
            self._ports["controller-manager"],
            self.kubeconfig("system:kube-controller-manager", ""),
            self._authority.certificate,
            self._own["controller-manager"],
            self._accounts,
        )

    def _scheduler_command(self) -> list[str]:
        config = self.folder / "scheduler.yaml"
        kubeconfig = self.kubeconfig("system:kube-scheduler", "")
        said = commands.scheduler_config(kubeconfig, **self._scheduling)
        config.write_text(yaml.safe_dump(said))
        own = self._own["scheduler"]
        port = self._ports["scheduler"]
        return commands.scheduler(self._programs.scheduler, port, config, own)

    def _answers(self, name: str) -> bool:
        """Whether that server's own readiness check says yes."""
        context = ssl.create_default_context(cafile=str(self._authority.certificate))
        # The API server tells only whom it knows; the others tell anyone.
        pair = self._authority.user(*ADMIN)
        context.load_cert_chain(pair.certificate, pair.key)
        connection = http.client.HTTPSConnection(
            commands.HOST, self._ports[name], timeout=ANSWER_WITHIN_S, context=context
        )
        return _says_yes(connection, "/healthz" if name == "controller-manager" else "/readyz")

    def _etcd_ready(self) -> bool:
        return _says_yes(self._etcd_connection(), "/health")

    def _etcd_connection(self) -> http.client.HTTPConnection:
        port = self._ports["etcd"]
        return http.client.HTTPConnection(commands.HOST, port, timeout=ANSWER_WITHIN_S)

    def _etcd_call(self, path: str, body: bytes) -> Any:
        connection = self._etcd_connection()
        try:
            connection.request("POST", path, body)
            answer = connection.getresponse()
            said = answer.read()
        finally:
            connection.close()
        if answer.status != http.client.OK:
            raise KubeError(f"etcd refuses {path}: {said.decode(errors='replace')}")
        return json.loads(said)


def _says_yes(connection: http.client.HTTPConnection, path: str) -> bool:
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return answer.status == http.client.OK
