"""Operations and bytes a second of a best-effort pod on each whole disk; never an online pod's.

One line a disk: io.max, or four files of v1. A disk that comes gets its limit within a minute; one
that goes takes its line along. Law: `agents.isolation.block_io`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from node_agent.actuators.knob import Ask, Found, Knob, Machine, Raw, Values
from node_agent.actuators.number import MAX, UNLIMITED

V1 = {
    "io_read_bytes_per_s": "blkio.throttle.read_bps_device",
    "io_write_bytes_per_s": "blkio.throttle.write_bps_device",
    "io_read_iops": "blkio.throttle.read_iops_device",
    "io_write_iops": "blkio.throttle.write_iops_device",
}
V2 = {
    "io_read_bytes_per_s": "rbps",
    "io_write_bytes_per_s": "wbps",
    "io_read_iops": "riops",
    "io_write_iops": "wiops",
}
IO_MAX = "io.max"
MOST_IOPS = (1 << 32) - 2  # the kernel takes the next for no limit
_DEVICE = "@"


class BlockIoLimits(Knob):
    """Keys are ``file@disk`` on v1 and ``word@disk`` on v2."""

    name = "block_io_limits"
    turns = frozenset(V1)
    surface = "io"

    def takes(self, ask: Ask) -> frozenset[str]:
        return frozenset(name for name, value in ask.knobs.items() if value != UNLIMITED)

    def lacks(self, ask: Ask, found: Values) -> frozenset[str]:
        there = {key.partition(_DEVICE)[0] for key in found}
        return frozenset(name for name in ask.knobs if not {V1[name], V2[name]} & there)

    def files(self, version: int) -> tuple[str, ...]:
        return tuple(V1.values()) if version == 1 else (IO_MAX,)

    def values(self, version: int, raw: Raw, machine: Machine) -> Values:
        found = {}
        for file, text in raw.items():
            lines = dict(line.split(maxsplit=1) for line in text.splitlines())
            for device in machine.devices:
                said = lines.get(device)
                if file != IO_MAX:
                    found[f"{file}{_DEVICE}{device}"] = said or MAX
                    continue
                words = dict(word.split("=", 1) for word in (said or "").split())
                for word in V2.values():
                    found[f"{word}{_DEVICE}{device}"] = words.get(word, MAX)
        return found

    def wanted(
        self, version: int, ask: Ask, members: Sequence[Found], originals: Mapping[str, Values]
    ) -> Mapping[str, Values]:
        if ask.online:
            return {}
        names = V1 if version == 1 else V2
        return {
            found.place: {
                key: _text(name, ask.knobs[name])
                for key in found.values
                for name in ask.knobs
                if key.startswith(names[name] + _DEVICE)
            }
            for found in members
        }

    def wider(self, before: Values, after: Values) -> bool:
        changed = (key for key, text in after.items() if before.get(key) != text)
        return all(_number(after[key]) > _number(before.get(key, MAX)) for key in changed)

    def writes(self, version: int, before: Values, after: Values) -> Iterator[tuple[str, str]]:
        for key, text in after.items():
            if before.get(key) == text:
                continue
            file, _, device = key.partition(_DEVICE)
            if version == 1:
                yield file, f"{device} {0 if text == MAX else text}"
            else:
                yield IO_MAX, f"{device} {file}={text}"


def _text(name: str, value: int) -> str:
    if value <= 0:
        return MAX
    return str(min(value, MOST_IOPS) if name.endswith("iops") else value)


def _number(text: str) -> float:
    return float("inf") if text == MAX else int(text)
