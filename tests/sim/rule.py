"""The rule that best-effort work must keep to, recomputed from the kernel's truth. Knows no law.

A node's history of what the rule allowed gives the bound that a real sampler can be held to: the
largest value over the time that a sample, or a gap, may be old.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from schemas.policy import Policy
from tests.sim.kernel import Kernel

FLOOR_MILLI = 10


def allowed_milli(kernel: Kernel, policy: Policy | None, reserved_milli: int) -> int:
    """Capacity x threshold - online - host - max(system, reserved), at least the floor."""
    if policy is None:
        return FLOOR_MILLI
    rule = policy.suppress
    others = sum(pod.got_milli for pod in kernel.of("online", "host"))
    share = kernel.cpu_milli * rule.threshold_percent // 100
    floor = max(rule.floor_milli, kernel.cpu_milli * rule.floor_percent // 100)
    return max(share - others - max(kernel.system_milli, reserved_milli), floor)


def memory_percent(kernel: Kernel) -> int:
    """Memory in use that cannot be reclaimed, of all."""
    return (kernel.memory_bytes - kernel.available_bytes) * 100 // kernel.memory_bytes


@dataclass(slots=True)
class History:
    """(log time, value) of the last while; `most` asks for the largest of a span."""

    keep_ms: int
    _values: deque[tuple[int, int]] = field(default_factory=deque)

    def note(self, now_ms: int, value: int) -> None:
        self._values.append((now_ms, value))
        while self._values[0][0] < now_ms - self.keep_ms:
            self._values.popleft()

    def most(self, since_ms: int) -> int:
        """The largest value at ``since_ms`` or later; what was never noted is no bound."""
        return max((value for at_ms, value in self._values if at_ms >= since_ms), default=0)
