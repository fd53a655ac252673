"""What the demo was asked to do, and how long each part takes. Built by `cli`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m)?")
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, None: 1.0}
QUIET_SHARE = 8  # each of the two phases without an agent takes this part of the time
QUIET_LONGEST_S = 8.0
UP_STEPS_WANTED = 6
STEP_S = (2.5, 4.0)  # shortest, longest
EXTRA_S = 30.0  # goes on so much longer when too few steps could be judged


def seconds(text: str) -> float:
    """``60s``, ``2m``, ``200ms`` or ``60`` in seconds; a ValueError says what to write."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no duration: write 60s, 2m or 90")
    return float(found[1]) * _UNIT_S[found[2]]


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """``for_s`` None: until Ctrl-C. ``outage_s`` 0: the broker stays."""

    for_s: float | None = None
    nodes: int = 50
    outage_s: float = 0.0
    keep_logs: Path | None = None
    record: Path | None = None  # a folder for `slackwater record`
    real: bool = True  # False: even root leaves its kernel alone

    @property
    def quiet_s(self) -> float:
        """Length of the phases `alone` and `unprotected`, each."""
        if self.for_s is None:
            return QUIET_LONGEST_S
        return min(self.for_s / QUIET_SHARE, QUIET_LONGEST_S)

    @property
    def step_s(self) -> float:
        """How long the online load stays before it steps again."""
        shortest, longest = STEP_S
        if self.for_s is None:
            return longest
        protected_s = self.for_s - 2 * self.quiet_s
        return min(max(protected_s / (2 * UP_STEPS_WANTED), shortest), longest)

    def check(self) -> None:
        """Raise ValueError for what cannot be shown."""
        if self.nodes < 1:
            raise ValueError("--nodes must be at least 1")
        if self.for_s is not None and self.for_s < 20:
            raise ValueError("--for must be at least 20s: fewer steps cannot be judged")
