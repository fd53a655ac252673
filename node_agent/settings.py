"""What `slackwater node run` was told, checked once; read by `node_agent.loop`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

POLICIES_NAME = "policies.json"  # in the state folder: the last policies heard
MIN_PERIOD_MS, MAX_PERIOD_MS = 100, 10_000
_UNITS_MS = {"ms": 1, "s": 1000}


SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
KUBELET_DIR = "/var/lib/kubelet"
DEFAULT_STATE_DIR = Path("/var/lib/slackwater")


@dataclass(frozen=True, slots=True)
class Kubernetes:
    """Whom to ask about pods and the node, and how they are trusted; "" is nobody and nothing."""

    kubelet: str = ""
    api_server: str = ""
    token: str = ""  # "": the service account's, where one is mounted and there is no certificate
    ca: str = ""  # "": the service account's, else the machine's own authorities
    cert: str = ""
    key: str = ""
    kubelet_name: str = ""
    kubelet_insecure: bool = False
    kubelet_dir: str = KUBELET_DIR


@dataclass(frozen=True, slots=True)
class Settings:
    """``inventory`` and ``roots`` name pods; ``kubepods`` None: those of a kubelet are looked for
    where there is no inventory file, or a kubelet to ask. ``be_root`` None: by itself.
    """

    node: str
    brokers: str
    prefix: str
    state_dir: Path
    period_ms: int = 1000
    inventory: Path | None = None
    roots: tuple[str, ...] = ()
    be_root: str | None = None
    floor_milli: int = 10
    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"
    use_idle: bool = True
    dry_run: bool = False
    nri: Path | None = None  # a runtime's NRI socket, where containers are set before they start
    cri_socket: Path | None = None  # None: one of the usual ones, where it is there
    keys: Path | None = None  # None: nothing is signed, nobody is checked
    accept_unsigned: bool = False  # while a fleet gets its keys
    kubepods: bool | None = None
    kubernetes: Kubernetes = Kubernetes()


def to_wire(settings: Settings) -> dict[str, Any]:
    """As JSON says it; `from_wire` reads it in the process that runs the agent."""
    wire: dict[str, Any] = msgspec.to_builtins(settings, enc_hook=str)
    return wire


def from_wire(text: str) -> Settings:
    """Raises msgspec.ValidationError for anything but the output of `to_wire`."""
    return msgspec.json.decode(text, type=Settings, dec_hook=_path)


def _path(kind: type[Any], value: Any) -> Any:
    return kind(value)


def parse_period(text: str) -> int:
    """Milliseconds of "1s" or "200ms". Raises ValueError saying what is allowed."""
    for unit, scale in _UNITS_MS.items():
        number = text.removesuffix(unit)
        if number != text and number.isdigit():
            period_ms = int(number) * scale
            if MIN_PERIOD_MS <= period_ms <= MAX_PERIOD_MS:
                return period_ms
    raise ValueError(
        f"period {text!r}: want {MIN_PERIOD_MS}ms to {MAX_PERIOD_MS // 1000}s, such as 1s or 200ms"
    )
