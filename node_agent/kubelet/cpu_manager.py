"""Which CPUs the kubelet gave to single containers: its state file, read again when it changes.

`node_agent.discovery` looks before each scan. Forms: Kubernetes `pkg/kubelet/cm/cpumanager/state`,
``entries`` by pod uid and container name, in old kubelets by container id. With the static policy
the kubelet writes cpusets itself and new containers start with its own set, so nobody else may
shrink the groups that it creates them in.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import msgspec

from agents.lending.reserved import cpus_of
from node_agent import plain_file

log = logging.getLogger(__name__)
STATE_BYTES = 4 << 20
STATIC = "static"


@dataclass(frozen=True, slots=True)
class Pinned:
    """One state; ``by_name`` and ``by_id`` (old kubelets) give the CPUs of containers."""

    static: bool = False
    by_name: dict[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)
    by_id: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def cpus(self, uids: tuple[str, ...], name: str, container: str) -> tuple[int, ...]:
        """Of a container of a pod that is known by any of ``uids``; empty: it shares."""
        named = (self.by_name[key] for uid in uids if (key := (uid, name)) in self.by_name)
        return next(named, self.by_id.get(container, ()))


NOTHING = Pinned()


class _State(msgspec.Struct):
    policyName: str = ""  # noqa: N815  (the file's name)
    entries: dict[str, dict[str, str] | str] | None = None


class CpuManagerState:
    """One file; a bad one keeps the last good state, an absent one pins nothing."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.error = ""
        self._stamp: plain_file.Stamp | None = None
        self._pinned = NOTHING

    def look(self) -> Pinned:
        """One stat when nothing has changed."""
        try:
            stamp = plain_file.stamp(self.path)
            if stamp != self._stamp:
                self._stamp = stamp
                self._pinned = parse(plain_file.read(self.path, STATE_BYTES))
                self.error = ""
        except (FileNotFoundError, NotADirectoryError):
            self._stamp, self._pinned, self.error = None, NOTHING, ""
        except (OSError, ValueError) as error:
            if str(error) != self.error:
                self.error = str(error)
                log.warning("%s not read, the last state holds: %s", self.path, error)
        return self._pinned


def parse(raw: bytes) -> Pinned:
    """Raises ValueError for anything but such a state."""
    try:
        said = msgspec.json.decode(raw, type=_State)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"no state of a CPU manager: {error}") from None
    by_name: dict[tuple[str, str], tuple[int, ...]] = {}
    by_id: dict[str, tuple[int, ...]] = {}
    for key, given in (said.entries or {}).items():
        if isinstance(given, str):
            by_id[key] = _cpus(given)
        else:
            by_name |= {(key, name): _cpus(cpus) for name, cpus in given.items()}
    return Pinned(said.policyName == STATIC, by_name, by_id)


def _cpus(said: str) -> tuple[int, ...]:
    return tuple(sorted(cpus_of(said))) if said else ()
