"""What kube-scheduler asks and how it is answered: the extender API, `extender/v1`.

Spelt as `k8s.io/kube-scheduler` spells it. Read and written by `scheduler_bridge.extender.service`.
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec
from lightkube.resources.core_v1 import Pod

from scheduler_bridge.http import BadQuestion

MOST_SCORE = 10
"""The best score of an extender; 0 is the worst."""
_WORD = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = re.compile(rf"(?=.{{1,253}}$){_WORD}(\.{_WORD})*")
"""Names of pods, namespaces and nodes: they become parts of paths."""


class _Meta(msgspec.Struct):
    name: str


class _Named(msgspec.Struct):
    metadata: _Meta


class NodeList(msgspec.Struct):
    """Whole nodes, kept as they came: who asked by nodes is answered by nodes."""

    items: list[msgspec.Raw]


class Question(msgspec.Struct):
    """One pod and its candidates: by name (`nodeCacheCapable`), or whole."""

    pod: Pod = msgspec.field(name="Pod")
    nodes: NodeList | None = msgspec.field(name="Nodes", default=None)
    names: list[str] | None = msgspec.field(name="NodeNames", default=None)

    def candidates(self) -> list[str]:
        """Their names. Raises BadQuestion when there are neither names nor nodes."""
        if self.names is not None:
            return self.names
        if self.nodes is None:
            raise BadQuestion("neither NodeNames nor Nodes is given; give one of them")
        return [decoded(raw, _Named).metadata.name for raw in self.nodes.items]


class Filtered(msgspec.Struct, omit_defaults=True):
    """The answer to a filter, in the form of the question."""

    names: list[str] | None = msgspec.field(name="NodeNames", default=None)
    nodes: NodeList | None = msgspec.field(name="Nodes", default=None)
    failed: dict[str, str] = msgspec.field(name="FailedNodes", default_factory=dict)
    unresolvable: dict[str, str] = msgspec.field(
        name="FailedAndUnresolvableNodes", default_factory=dict
    )
    error: str = msgspec.field(name="Error", default="")


class Priority(msgspec.Struct):
    """One node's score, 0 to `MOST_SCORE`."""

    host: str = msgspec.field(name="Host")
    score: int = msgspec.field(name="Score")


class Binding(msgspec.Struct):
    """Bind this pod to this node."""

    name: str = msgspec.field(name="PodName")
    namespace: str = msgspec.field(name="PodNamespace")
    uid: str = msgspec.field(name="PodUID")
    node: str = msgspec.field(name="Node")

    def __post_init__(self) -> None:
        for word in (self.name, self.namespace, self.node):
            if not _NAME.fullmatch(word):
                raise ValueError(f"{word!r:.80} is no name of a pod, a namespace or a node")


class Bound(msgspec.Struct):
    """Empty: it is bound."""

    error: str = msgspec.field(name="Error", default="")


S = TypeVar("S", bound=msgspec.Struct)


def decoded(body: bytes | msgspec.Raw, kind: type[S]) -> S:
    """Raises BadQuestion, which says what is wrong and where."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadQuestion(f"not a question of extender/v1: {error}") from None
