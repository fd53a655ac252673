"""The command lines and files of the cluster's programs. Pure; used by `tests.kube.cluster`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.kube.certificates import Pair

HOST = "127.0.0.1"
# Nobody is behind these addresses: nothing here runs containers.
SERVICE_ADDRESSES = "10.255.0.0/16"

# What the tests lean on: budgets are counted, workloads make their pods anew, namespaces and what
# is owned go away whole. None that judges nodes by their heartbeats, for nodes here have none.
CONTROLLERS = (
    "clusterrole-aggregation-controller",
    "daemonset-controller",
    "deployment-controller",
    "disruption-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "replicaset-controller",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "statefulset-controller",
)


def etcd(program: Path, data: Path, port: int, peer_port: int) -> list[str]:
    """Nothing here outlives a power cut, so nothing waits for the disk."""
    client, peer = f"http://{HOST}:{port}", f"http://{HOST}:{peer_port}"
    return [
        str(program),
        f"--data-dir={data}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--log-level=warn",
        "--unsafe-no-fsync",
    ]


def api_server(
    program: Path, port: int, etcd_port: int, authority: Path, own: Pair, accounts: Path
) -> list[str]:
    """RBAC as in production. `accounts` is the key that signs service account tokens."""
    return [
        str(program),
        f"--etcd-servers=http://{HOST}:{etcd_port}",
        f"--bind-address={HOST}",
        f"--advertise-address={HOST}",
        f"--secure-port={port}",
        "--endpoint-reconciler-type=none",
        f"--service-cluster-ip-range={SERVICE_ADDRESSES}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--client-ca-file={authority}",
        f"--tls-cert-file={own.certificate}",
        f"--tls-private-key-file={own.key}",
        f"--service-account-issuer=https://{HOST}:{port}",
        f"--service-account-key-file={accounts}",
        f"--service-account-signing-key-file={accounts}",
        # Else a stop waits a minute for those who watch.
        "--shutdown-watch-termination-grace-period=1s",
        "--profiling=false",
    ]


def controller_manager(
    program: Path, port: int, kubeconfig: Path, authority: Path, own: Pair, accounts: Path
) -> list[str]:
    """Only `CONTROLLERS`, each with the rights of its own account."""
    return [
        str(program),
        f"--kubeconfig={kubeconfig}",
        f"--bind-address={HOST}",
        f"--secure-port={port}",
        f"--tls-cert-file={own.certificate}",
        f"--tls-private-key-file={own.key}",
        f"--root-ca-file={authority}",
        f"--service-account-private-key-file={accounts}",
        "--use-service-account-credentials=true",
        f"--controllers={','.join(CONTROLLERS)}",
        "--leader-elect=false",
        "--profiling=false",
    ]


def scheduler(program: Path, port: int, config: Path, own: Pair) -> list[str]:
    return [
        str(program),
        f"--config={config}",
        f"--bind-address={HOST}",
        f"--secure-port={port}",
        f"--tls-cert-file={own.certificate}",
        f"--tls-private-key-file={own.key}",
    ]


def scheduler_config(kubeconfig: Path, **settings: Any) -> dict[str, Any]:
    """A KubeSchedulerConfiguration; `settings` are further fields of it, such as `extenders`."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "leaderElection": {"leaderElect": False},
        # A pod that does not fit is looked at again soon.
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 1,
        "enableProfiling": False,
        **settings,
    }


def kubeconfig(server: str, authority: Path, name: str, pair: Pair) -> dict[str, Any]:
    """How a user reaches the API server, as programs and clients read it."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": name}}],
        "clusters": [
            {"name": "test", "cluster": {"server": server, "certificate-authority": str(authority)}}
        ],
        "users": [
            {
                "name": name,
                "user": {
                    "client-certificate": str(pair.certificate),
                    "client-key": str(pair.key),
                },
            }
        ],
    }


def tail(lines: Sequence[str], most: int = 15) -> str:
    """The end of a log, as an error shows it."""
    return "\n".join(f"    {line}" for line in lines[-most:]) or "    (it is empty)"
