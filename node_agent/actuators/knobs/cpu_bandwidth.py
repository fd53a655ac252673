"""CPU burst of online pods: the kernel's burst, and a quota above the pod's own.

Settings speak of the pod, in microseconds a period of 100 ms; its containers get their part by
their own quotas. The kernel takes no burst above the quota and, on v1, no quota above the parent's:
so burst goes down before a quota falls and up after it has risen, and parents rise first. A group
without a quota needs neither and gets neither. Formulas: `agents.isolation.cpu_burst`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from node_agent.actuators.knob import Ask, Found, Knob, Machine, Raw, Values

PERIOD_US = 100_000
V1 = ("cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.cfs_burst_us")
V2 = ("cpu.max", "cpu.max.burst")
QUOTA, BURST = "cpu_quota_us", "cpu_burst_us"


class CpuBandwidth(Knob):
    """Never less than the original, for whomever: best effort's quota is another's business."""

    name = "cpu_bandwidth"
    turns = frozenset({QUOTA, BURST})
    surface = "cpu"
    deep = True

    def files(self, version: int) -> tuple[str, ...]:
        return V1 if version == 1 else V2

    def values(self, version: int, raw: Raw, machine: Machine) -> Values:
        return {file: " ".join(text.split()) for file, text in raw.items()}

    def lacks(self, ask: Ask, found: Values) -> frozenset[str]:
        missing = set()
        if not found.keys() & {V1[0], V2[0]}:
            missing.add(QUOTA)
        if not found.keys() & {V1[2], V2[1]}:
            missing.add(BURST)
        return frozenset(missing & ask.knobs.keys())

    def wanted(
        self, version: int, ask: Ask, members: Sequence[Found], originals: Mapping[str, Values]
    ) -> Mapping[str, Values]:
        top = _quota(version, originals[members[0].place])
        wanted: dict[str, Values] = {}
        for found in members:
            own = originals[found.place]
            mine = _quota(version, own)
            if top is None or mine is None:
                continue
            whole = PERIOD_US * top[0]
            quota_us = ask.knobs.get(QUOTA, 0) * mine[0] * top[1] // whole
            burst_us = ask.knobs.get(BURST, 0) * mine[0] * top[1] // whole
            wanted[found.place] = _texts(version, own, max(mine[0], quota_us), burst_us)
        return wanted

    def wider(self, before: Values, after: Values) -> bool:
        return _share(after) > _share(before)

    def writes(self, version: int, before: Values, after: Values) -> list[tuple[str, str]]:
        *quota, burst = self.files(version)
        said = [(file, after[file]) for file in quota if before.get(file) != after.get(file)]
        change = int(after.get(burst, "0")) - int(before.get(burst, "0"))
        if change:
            said.insert(len(said) if change > 0 else 0, (burst, after[burst]))
        return said


def _quota(version: int, values: Values) -> tuple[int, int] | None:
    """(quota, period) in us; None without a limit or a controller."""
    if version == 2:
        word, _, period = values.get(V2[0], "max 0").partition(" ")
        return None if word == "max" else (int(word), int(period))
    quota_us = int(values.get(V1[0], "-1"))
    return None if quota_us < 0 else (quota_us, int(values[V1[1]]))


def _texts(version: int, own: Values, quota_us: int, burst_us: int) -> Values:
    if version == 2:
        period = own[V2[0]].partition(" ")[2]
        quota, burst, wanted = V2[0], V2[1], f"{quota_us} {period}"
    else:
        quota, burst, wanted = V1[0], V1[2], str(quota_us)
    said = {quota: wanted}
    if burst in own:
        said[burst] = str(max(int(own[burst]), min(burst_us, quota_us)))
    return said


def _share(values: Values) -> float:
    quota = _quota(2 if V2[0] in values else 1, values)
    return float("inf") if quota is None else quota[0] / quota[1]
