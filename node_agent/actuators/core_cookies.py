"""The kernel's core scheduling (Linux 5.14), through prctl: cookies that say who may share a core.

The kernel makes up a cookie's number and gives it to a task only from another that has it. So for
each number of the settings one idle thread of the agent holds a cookie and hands it out; one more
holds none and takes cookies away. `node_agent.actuators.cores` asks.
"""

from __future__ import annotations

import ctypes
import os
import queue
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cache

_PR_SCHED_CORE = 62
GET, CREATE, SHARE_TO = 0, 1, 2
THREAD, THREAD_GROUP = 0, 1
NONE = 0
"""The cookie of whom anybody may sit beside."""

Prctl = Callable[[int, int, int], int]
"""(operation, task, scope) -> the cookie, for GET. Raises OSError."""


def prctl(operation: int, task: int, scope: int) -> int:
    """The system call; ``task`` 0 is the calling thread. Raises OSError."""
    found = ctypes.c_uint64(0)
    at = ctypes.byref(found) if operation == GET else None
    if _libc().prctl(_PR_SCHED_CORE, operation, task, scope, at):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return found.value


@dataclass(slots=True)
class _Holder:
    """A thread that stands still but when it hands its cookie out."""

    asked: queue.SimpleQueue[int] = field(default_factory=queue.SimpleQueue)
    answers: queue.SimpleQueue[OSError | int] = field(default_factory=queue.SimpleQueue)


class CoreCookies:
    """Of one agent, for as long as it lives."""

    def __init__(self, call: Prctl = prctl) -> None:
        self._call = call
        self._holders: dict[int, _Holder] = {}
        self._numbers: dict[int, int] = {}  # the kernel's cookie -> number of the settings

    def there(self) -> bool:
        """Whether this kernel and its CPUs can, and this agent has no cookie itself."""
        try:
            return self._call(GET, 0, THREAD) == NONE
        except OSError:
            return False

    def of(self, task: int) -> tuple[int, bool] | None:
        """(number, True) of a cookie of ours, (cookie, False) of another's; None: it has ended."""
        try:
            cookie = self._call(GET, task, THREAD)
        except ProcessLookupError:
            return None
        if cookie == NONE:
            return NONE, True
        number = self._numbers.get(cookie)
        return (cookie, False) if number is None else (number, True)

    def give(self, number: int, processes: Collection[int]) -> None:
        """The cookie of this number to all threads of these processes; `NONE` takes theirs.

        One that has ended is passed over. Raises OSError as the kernel answers.
        """
        holder = self._holders.get(number) or self._hold(number)
        for process in processes:
            holder.asked.put(process)
            answer = holder.answers.get()
            if isinstance(answer, OSError) and not isinstance(answer, ProcessLookupError):
                raise answer

    def _hold(self, number: int) -> _Holder:
        holder = _Holder()
        thread = threading.Thread(
            target=self._stand, args=(holder, number), name=f"cookie-{number}", daemon=True
        )
        thread.start()
        cookie = holder.answers.get()
        if isinstance(cookie, OSError):
            raise cookie
        if number != NONE:
            self._numbers[cookie] = number
        self._holders[number] = holder
        return holder

    def _stand(self, holder: _Holder, number: int) -> None:
        try:
            if number != NONE:
                self._call(CREATE, 0, THREAD)
            holder.answers.put(self._call(GET, 0, THREAD))
        except OSError as error:
            holder.answers.put(error)
            return
        while True:
            process = holder.asked.get()
            try:
                holder.answers.put(self._call(SHARE_TO, process, THREAD_GROUP))
            except OSError as error:
                holder.answers.put(error)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
