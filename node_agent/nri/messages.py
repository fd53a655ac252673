"""What an NRI plugin hears and says. Field numbers: containerd/nri `pkg/api/api.proto`, and ttrpc's
own request and response.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from node_agent.protocol_buffers import fields, inside, message, number, signed, text

PLUGIN_SERVICE = "nri.pkg.api.v1alpha1.Plugin"
RUNTIME_SERVICE = "nri.pkg.api.v1alpha1.Runtime"
CREATE_CONTAINER = 1 << 3
"""The one event that is asked for, as a bit of the mask."""
UNIMPLEMENTED = 12
"""Of gRPC's codes."""


class Call(NamedTuple):
    """One request of ttrpc."""

    service: str
    method: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class Birth:
    """A container that is about to be made; 0: nothing was said of it.

    ``parent``: the group of its pod, as the kubelet wants it.
    """

    uid: str
    parent: str
    name: str
    annotations: dict[str, str]
    quota_us: int = 0
    limit_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Gift:
    """What it gets besides; None: as it was asked for."""

    shares: int | None = None
    quota_us: int | None = None
    period_us: int | None = None
    limit_bytes: int | None = None


def call(service: str, method: str, payload: bytes) -> bytes:
    """A request."""
    return text(1, service) + text(2, method) + message(3, payload)


def called(data: bytes) -> Call:
    """A request that came. Raises BadMessage."""
    service, method, payload = (inside(data, place) for place in (1, 2, 3))
    return Call(_text(service), _text(method), payload if isinstance(payload, bytes) else b"")


def answer(payload: bytes) -> bytes:
    """A response that all is well."""
    return message(2, payload)


def refusal(code: int, why: str) -> bytes:
    """A response that it is not."""
    return message(1, number(1, code) + text(2, why))


def trouble(data: bytes) -> str:
    """Why a response is a refusal; "" when it is none. Raises BadMessage."""
    code, why = inside(data, 1, 1), inside(data, 1, 2)
    return f"code {_int(code)}: {_text(why)}" if code else ""


def register(name: str, index: str) -> bytes:
    """RegisterPluginRequest."""
    return text(1, name) + text(2, index)


def configured() -> bytes:
    """ConfigureResponse: the events that are asked for."""
    return number(2, CREATE_CONTAINER)


def synchronized(data: bytes) -> bytes:
    """SynchronizeResponse: nothing is changed; more of the list is taken where more is to come."""
    more = inside(data, 3)
    return number(2, int(bool(more)))


def birth(data: bytes) -> Birth:
    """A CreateContainerRequest. Raises BadMessage."""
    pod, container = (_bytes(inside(data, place)) for place in (1, 2))
    notes = (item for place, item in fields(pod) if place == 6 and isinstance(item, bytes))
    pairs = (dict(fields(note)) for note in notes)
    return Birth(
        uid=_text(inside(pod, 3)),
        parent=_text(inside(pod, 8, 3)),
        name=_text(inside(container, 3)),
        annotations={_text(pair.get(1)): _text(pair.get(2)) for pair in pairs},
        quota_us=_int(inside(container, 11, 3, 2, 2, 1)),
        limit_bytes=_int(inside(container, 11, 3, 1, 1, 1)),
    )


def given(gift: Gift | None) -> bytes:
    """CreateContainerResponse; without a gift nothing is adjusted."""
    if gift is None:
        return b""
    memory = _optional(1, gift.limit_bytes)
    cpu = _optional(1, gift.shares) + _optional(2, gift.quota_us) + _optional(3, gift.period_us)
    resources = (message(1, memory) if memory else b"") + (message(2, cpu) if cpu else b"")
    return message(1, message(6, message(2, resources)))


def _optional(place: int, value: int | None) -> bytes:
    return b"" if value is None else message(place, number(1, value))


def _bytes(found: bytes | int | None) -> bytes:
    return found if isinstance(found, bytes) else b""


def _text(found: bytes | int | None) -> str:
    return _bytes(found).decode("utf-8", "replace")


def _int(found: bytes | int | None) -> int:
    return signed(found) if isinstance(found, int) else 0
