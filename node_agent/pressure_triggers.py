"""Kernel pressure triggers: the kernel says when a group stalls, so that looks may be rarer.

`node_agent.reflex` arms one a watched group where the kernel lets us. Windows shorter than 2 s
need CAP_SYS_RESOURCE, and some kernels take none at all: `Triggers.open` answers None there, and
the reflex looks often instead. A trigger is a hint: whoever is woken looks at the counters.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
from collections.abc import Mapping

from node_agent.cgroup.layout import Layout

WINDOW_US = 500_000  # the shortest the kernel takes; it looks ten times in it
_ASKED = select.EPOLLPRI | select.EPOLLERR

log = logging.getLogger(__name__)


class Triggers:
    """Armed groups; `descriptor` is readable while one of them has fired."""

    def __init__(self, layout: Layout, window_us: int) -> None:
        self.fired = 0
        self.window_us = window_us
        self._layout = layout
        self._epoll = select.epoll()
        self._armed: dict[str, tuple[int, int]] = {}  # group -> (descriptor, stall us)

    @classmethod
    def open(cls, layout: Layout, window_us: int = WINDOW_US) -> Triggers | None:
        """None where the kernel refuses such a trigger on the whole machine's pressure; said once.

        That is the file where nothing else can be the reason.
        """
        try:
            os.close(_armed(f"{layout.root.rstrip('/')}/proc/pressure/cpu", window_us, window_us))
        except OSError as error:
            log.info("no pressure triggers of %d ms here: %s", window_us // 1000, error.strerror)
            return None
        return cls(layout, window_us)

    @property
    def descriptor(self) -> int:
        """For the event loop."""
        return self._epoll.fileno()

    def arm(self, stalls_us: Mapping[str, int]) -> None:
        """Exactly these groups, each by the stalled time in one window that wakes.

        A group that is gone, or has no pressure file, is left out: looks find it too.
        """
        wanted = {group: min(max(us, 1), self.window_us) for group, us in stalls_us.items()}
        for group, (_, us) in list(self._armed.items()):
            if wanted.get(group) != us:
                self._drop(group)
        for group in wanted.keys() - self._armed.keys():
            place = self._layout.place("psi_cpu", group)
            if place is None:
                continue
            with contextlib.suppress(OSError):
                descriptor = _armed(place.path, wanted[group], self.window_us)
                self._armed[group] = (descriptor, wanted[group])
                self._epoll.register(descriptor, _ASKED)

    def note_fired(self) -> None:
        """The descriptor is readable: one has fired, and which one the kernel does not say again.

        Looking whether it is readable has taken the event already. A group that went stays
        readable for ever: it is dropped.
        """
        self.fired += 1
        events = dict(self._epoll.poll(0))
        for group, (descriptor, _) in list(self._armed.items()):
            if events.get(descriptor, 0) & select.EPOLLERR:
                self._drop(group)

    def close(self) -> None:
        """Disarm all."""
        for group in list(self._armed):
            self._drop(group)
        self._epoll.close()

    def _drop(self, group: str) -> None:
        descriptor, _ = self._armed.pop(group)
        os.close(descriptor)  # the kernel takes it off the epoll list with it


def _armed(path: str, stall_us: int, window_us: int) -> int:
    """The descriptor of a new trigger. Raises OSError: EINVAL without the right to the window."""
    descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.write(descriptor, f"some {stall_us} {window_us}\0".encode())  # its end is cut off
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
