"""Joins the ledger to a bridge: which systems borrow, and who may write. Called by the CLI."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scheduler_bridge.ledger.bound_pods import Names
from scheduler_bridge.ledger.keeper import Keeper
from scheduler_bridge.ledger.log import LedgerLog
from scheduler_bridge.ledger.systems import Borrower
from scheduler_bridge.ledger.yarn_system import LOOK_S, YarnSystem
from scheduler_bridge.loop import Bridge
from scheduler_bridge.sinks.yarn import ResourceManager, check_urls
from schemas.ledger import check_scheduler

SETTLE_MS = 2_000
LEARN_MS = 10_000


@dataclass(frozen=True, slots=True)
class LedgerSettings:
    """``yarn``: addresses of its ResourceManagers, none: no YARN. Weights: parts of what is idle.

    ``yarn_name`` is the peer's own name for YARN: its operator beside ours is not counted twice.

    ``settle_ms``: how long a fall on a Kubernetes node is waited for; ``learn_ms``: how long a
    ResourceManager that has begun may know too little.
    """

    yarn: tuple[str, ...] = ()
    yarn_user: str = "yarn"
    yarn_name: str = "hadoop-yarn"
    yarn_weight: int = 1
    kubernetes_name: str = "kubernetes"
    kubernetes_weight: int = 1
    settle_ms: int = SETTLE_MS
    learn_ms: int = LEARN_MS
    look_s: float = LOOK_S

    def __post_init__(self) -> None:
        check_scheduler(self.yarn_name)
        check_scheduler(self.kubernetes_name)
        if self.yarn_name == self.kubernetes_name:
            raise ValueError(f"two schedulers are named {self.yarn_name}; give them two names")
        for name in ("yarn_weight", "kubernetes_weight"):
            if not 1 <= getattr(self, name) <= 1000:
                raise ValueError(f"{name} is {getattr(self, name)}; allowed: 1 to 1000")
        for name in ("settle_ms", "learn_ms"):
            if not 0 <= getattr(self, name) <= 600_000:
                raise ValueError(f"{name} is {getattr(self, name)}; allowed: 0 to 600000")


def settings_of(sink: str, said: Mapping[str, Any]) -> LedgerSettings | None:
    """Of the command line; None: a sink that only shows writes no ledger. Raises ValueError."""
    urls = tuple(url.strip() for url in (said["yarn"] or "").split(",") if url.strip())
    if sink == "dry-run":
        if urls:
            raise ValueError("--yarn would tell YARN in earnest; take --sink kubernetes or yarn")
        return None
    if sink == "yarn" and not urls:
        raise ValueError("--sink yarn needs --yarn http://host:8088[,...]")
    if urls:
        check_urls(urls)
    return LedgerSettings(
        yarn=urls,
        yarn_user=said["yarn_user"],
        yarn_weight=said["yarn_weight"],
        kubernetes_weight=said["kubernetes_weight"],
    )


def attach(bridge: Bridge, settings: LedgerSettings, names: Names) -> Keeper:
    """Give the bridge a keeper and its borrowers' tasks; before it runs. Raises ValueError.

    ``names``: of the resources. Where the sink is Kubernetes, its connection and its Lease serve.
    """
    borrowers: list[Borrower] = []
    kube = getattr(bridge.sink, "kube", None)
    if kube is not None:
        # Only here are the packages of Kubernetes needed.
        from scheduler_bridge.ledger.annotations import Annotations, Said  # noqa: PLC0415
        from scheduler_bridge.ledger.kubernetes import KubernetesSystem  # noqa: PLC0415

        def wanted() -> dict[str, Said]:
            yarn, view = settings.yarn_name, bridge.view
            return {
                node: Said(view.desired[node].amount, {yarn: view.book.of(node).holds(yarn)})
                for node in keeper.shared(settings.kubernetes_name)
                if settings.yarn and node in view.desired
            }

        pods = KubernetesSystem(
            kube, settings.kubernetes_name, names, lambda: bridge.sink.observed,
            {settings.yarn_name}, weight=settings.kubernetes_weight, settle_ms=settings.settle_ms,
        )  # fmt: skip
        borrowers.append(pods)
        bridge.parts["pods"] = pods.run
        notes = Annotations(kube, pods.notes, wanted, lambda: keeper.reigns, names[:2])
        bridge.parts["annotations"] = notes.run
    if settings.yarn:
        yarn = YarnSystem(
            ResourceManager(settings.yarn, settings.yarn_user), settings.yarn_name,
            lambda: bridge.view.desired, lambda: keeper.reigns,
            weight=settings.yarn_weight, learn_ms=settings.learn_ms, look_s=settings.look_s,
        )  # fmt: skip
        borrowers.append(yarn)
        bridge.parts["yarn"] = yarn.run
    keeper = Keeper(
        f"{socket.gethostname()}_{uuid.uuid4().hex[:12]}",
        bridge.view,
        LedgerLog(bridge.settings.brokers, bridge.settings.prefix),
        borrowers,
        lambda: bridge.ready,
        None if kube is None else (lambda: bridge.sink.may_tell),
        bridge.settings.rules.stale_ms,
    )
    bridge.keeper = keeper
    bridge.parts["ledger"] = keeper.run
    return keeper
