"""What is asked of the kubelet and of the API server, and how often; called by the agent's start.

The kubelet's configuration is asked for beside its pods now and then: it names the CPUs that are
kept for the system. A role that may not read it loses that and nothing else.
"""

from __future__ import annotations

import logging
import os
from typing import Any, NamedTuple

import msgspec

from agents.lending.reserved import cpus_of
from node_agent.kubelet import facts, node_object
from node_agent.kubelet.client import Access, Client, KubeError
from node_agent.kubelet.facts import Answer
from node_agent.kubelet.watch import Watch
from node_agent.settings import SERVICE_ACCOUNT, Kubernetes

log = logging.getLogger(__name__)
PODS_S = 10.0
NODE_S = 60.0
NODE_SLOWEST_S = 600.0
CONFIG_EVERY = 60  # questions


class KubeletSaid(NamedTuple):
    """One answer about pods, and the CPUs reserved for the system as last heard ("": none)."""

    pods: Answer
    reserved_cpus: str = ""


class _Config(msgspec.Struct):
    reservedSystemCPUs: str = ""  # noqa: N815  (the wire's name)


class _Configz(msgspec.Struct):
    kubeletconfig: _Config


class Kubelet:
    """The questions to one kubelet."""

    def __init__(self, access: Access) -> None:
        """Raises ValueError for an access that cannot be meant."""
        self._client = Client(access)
        self.close = self._client.close
        self._asked = 0
        self._reserved_cpus = ""
        self._told: tuple[str, ...] = ()

    def __call__(self) -> KubeletSaid:
        """Raises `KubeError`, or ValueError for an answer that is no list of pods."""
        answer = facts.read(self._client.get("/pods"))
        for line in (*answer.refused, *answer.doubts):
            if line not in self._told:
                log.warning("pod %s", line)
        self._told = (*answer.refused, *answer.doubts)
        if self._asked % CONFIG_EVERY == 0:
            self._configuration()
        self._asked += 1
        return KubeletSaid(answer, self._reserved_cpus)

    def _configuration(self) -> None:
        try:
            raw = self._client.get("/configz")
            said = msgspec.json.decode(raw, type=_Configz).kubeletconfig.reservedSystemCPUs
            self._reserved_cpus = said if said and cpus_of(said) else ""
        except (KubeError, msgspec.DecodeError, ValueError) as error:
            log.info("the kubelet's configuration is not known: %s", error)


class Node:
    """The questions to an API server about one node."""

    def __init__(self, access: Access, node: str) -> None:
        """Raises ValueError for an access that cannot be meant."""
        self._client = Client(access)
        self.close = self._client.close
        self._node = node

    def __call__(self) -> dict[str, Any]:
        """Fields of the inventory. Raises as `Kubelet` does."""
        path = node_object.PATH.format(node=self._node)
        return node_object.read(self._client.get(path), self._node)


def watches(
    said: Kubernetes, node: str
) -> tuple[Watch[KubeletSaid] | None, Watch[dict[str, Any]] | None]:
    """Those who are to be asked, not yet started. Raises ValueError for a URL that is none."""
    kubelet, node_object = None, None
    if said.kubelet:
        pods = Kubelet(access(said, said.kubelet, kubelet=True))
        kubelet = Watch("kubelet", pods, PODS_S, end=pods.close)
    if said.api_server:
        about = Node(access(said, said.api_server, kubelet=False), node)
        node_object = Watch("API server", about, NODE_S, NODE_SLOWEST_S, end=about.close)
    return kubelet, node_object


def access(said: Kubernetes, url: str, *, kubelet: bool) -> Access:
    """With the service account's token and authority where nothing else was said."""
    token, ca = said.token, said.ca
    if not token and not said.cert and url.startswith("https"):
        token = _mounted("token")
    insecure = kubelet and said.kubelet_insecure
    if not ca and not insecure:
        ca = _mounted("ca.crt")
    if insecure:
        log.warning("whoever answers as %s is believed: its certificate is not looked at", url)
    name = said.kubelet_name if kubelet else ""
    return Access(url, token, ca, said.cert, said.key, name, insecure)


def _mounted(name: str) -> str:
    path = f"{SERVICE_ACCOUNT}/{name}"
    return path if os.path.exists(path) else ""
