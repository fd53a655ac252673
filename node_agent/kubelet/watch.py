"""Asks an endpoint again and again from a thread of its own, and keeps the last good answer.

`node_agent.discovery` takes `latest` before each sweep, which never waits. An answer that cannot
be had or read changes nothing but the figures that say so.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from node_agent.kubelet.client import KubeError

log = logging.getLogger(__name__)
LEAST_GAP_S = 1.0  # between two questions, however often somebody asks for one
T = TypeVar("T")


class Heard(NamedTuple, Generic[T]):
    """A good answer, and when it came (of the monotonic clock)."""

    said: T
    at_s: float


class Watch(Generic[T]):
    """One endpoint. ``ask`` raises `KubeError` or ValueError when it has no good answer."""

    def __init__(
        self,
        name: str,
        ask: Callable[[], T],
        every_s: float,
        slowest_s: float | None = None,
        end: Callable[[], None] | None = None,
    ) -> None:
        """``slowest_s``: how far apart questions grow while none is answered; default: not.
        ``end``: called by the thread when it stops.
        """
        self.name = name
        self.latest: Heard[T] | None = None
        self.error = ""  # why the last question was not answered; empty: it was
        self.errors = 0
        self.answers = 0
        self._ask, self._every_s, self._slowest_s = ask, every_s, slowest_s or every_s
        self._end = end
        self._told = threading.Condition()
        self._wanted = False
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=f"ask-{name}", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self) -> None:
        """Ask no more; does not wait for an answer on its way."""
        with self._told:
            self._ended = True
            self._told.notify_all()

    def wake(self) -> None:
        """Something is there that the last answer did not know: ask soon."""
        with self._told:
            self._wanted = True
            self._told.notify_all()

    def first(self, seconds: float) -> bool:
        """Wait for the first question to be answered or refused; whether it was answered."""
        with self._told:
            self._told.wait_for(lambda: self.answers or self.errors or self._ended, seconds)
        return self.latest is not None

    def age_s(self) -> float:
        """Of the last good answer; -1 before the first."""
        heard = self.latest
        return -1.0 if heard is None else time.monotonic() - heard.at_s

    def _run(self) -> None:
        try:
            self._questions()
        finally:
            if self._end is not None:
                self._end()

    def _questions(self) -> None:
        every_s = self._every_s
        while True:
            every_s = self._every_s if self._once() else min(every_s * 2, self._slowest_s)
            began = time.monotonic()
            with self._told:
                self._told.notify_all()
                self._told.wait_for(lambda: self._ended or self._wanted, every_s)
                while not self._ended and (left := began + LEAST_GAP_S - time.monotonic()) > 0:
                    self._told.wait(left)
                if self._ended:
                    return
                self._wanted = False

    def _once(self) -> bool:
        try:
            said = self._ask()
        except (KubeError, ValueError) as error:
            self.errors += 1
            if str(error) != self.error:
                self.error = str(error)
                log.warning("%s not heard, what was known holds: %s", self.name, error)
            return False
        except Exception:
            self.errors += 1
            self.error = "unexpected; see the log"
            log.exception("%s not heard, what was known holds", self.name)
            return False
        if self.error:
            log.info("%s is heard again", self.name)
        self.latest = Heard(said, time.monotonic())
        self.answers += 1
        self.error = ""
        return True
