"""What goes wrong with a write, as a stable reason code; raised by actuators, said by `obey`."""

from __future__ import annotations

import errno

from node_agent.actuators.beneath import UnsafePath


class ActuatorFailed(Exception):
    """The kernel refused; what had been written before was put back. ``errno`` says why."""

    def __init__(self, knob: str, error: OSError) -> None:
        super().__init__(f"{knob}: {error}")
        self.errno = error.errno or errno.EIO
        self.reason = f"{knob}:{errno.errorcode.get(self.errno, str(self.errno))}"


class Named(OSError):
    """An error number that has a plainer word here: ``reason``, a stable code."""

    def __init__(self, number: int, reason: str, text: str) -> None:
        super().__init__(number, text)
        self.reason = reason


REFUSALS = (ActuatorFailed, ValueError, OSError)
"""What a write or a reading may end in; a ValueError is a path or a text that is none."""


def reason_of(error: Exception) -> str:
    """A stable reason code with the errno's name."""
    if isinstance(error, (ActuatorFailed, Named)):
        return error.reason
    if isinstance(error, UnsafePath):
        return "unsafe_path"
    if isinstance(error, (ValueError, LookupError)):
        return "unreadable"
    number = error.errno if isinstance(error, OSError) else None
    return f"os:{errno.errorcode.get(number or 0, 'EIO')}"
