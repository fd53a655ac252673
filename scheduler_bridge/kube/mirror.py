"""One kind of object, listed and watched into a dict that stays fresh.

Made by the sink (nodes), the ledger and the extender (pods) and others. Resumes after breaks where
it stopped; lists again when the API server no longer keeps that version (410), and then says too
what vanished meanwhile. Bookmarks keep a silent watch young. Memory: what ``keep`` returns.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any, Generic, Literal, TypeVar, cast

import msgspec
from lightkube.core.resource import api_info

from scheduler_bridge.kube.client import Kube
from scheduler_bridge.kube.errors import KubeExpired, KubeUnreachable, refused

log = logging.getLogger("slackwater.bridge")
T = TypeVar("T")
CHUNK = 500
WATCH_S = 300
FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 2.0
SAID_AGAIN_S = 30.0
BREAKS_BEFORE_LIST = 5
"""So many breaks in a row without a word: the version itself may be at fault, so list again."""

Listener = Callable[[str, T | None, T | None], None]
"""Called with key, what was kept before (None: added) and now (None: removed)."""


class _Meta(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    version: str = msgspec.field(name="resourceVersion", default="")
    continue_: str = msgspec.field(name="continue", default="")


class _Head(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


class _List(msgspec.Struct):
    metadata: _Meta
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct):
    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: msgspec.Raw


class _Status(msgspec.Struct):
    code: int = 0
    message: str = ""
    reason: str = ""


class Mirror(Generic[T]):
    """``kind`` is a resource class of lightkube; ``keep`` picks out what is kept, None: nothing.

    Keys are ``name``, for namespaced kinds ``namespace/name``. ``fields`` and ``labels`` are
    selectors as kubectl takes them. `run` it as a task.
    """

    def __init__(
        self,
        kube: Kube,
        kind: type[Any],
        keep: Callable[[Any], T | None],
        *,
        namespace: str = "",
        fields: str = "",
        labels: str = "",
    ) -> None:
        self._kube = kube
        self._kind = kind
        self._keep = keep
        self._path = _path(kind, namespace)
        self._selectors = {
            name: value
            for name, value in (("fieldSelector", fields), ("labelSelector", labels))
            if value
        }
        self._objects: dict[str, T] = {}
        self._listeners: list[Listener[T]] = []
        self._version = ""
        self._synced = asyncio.Event()
        self._heard_s = 0.0
        self._said = ""
        self._said_s = 0.0
        self.lists = 0
        self.unreadable = 0

    @property
    def objects(self) -> Mapping[str, T]:
        """What is kept, by key; changes under the reader, between two awaits only."""
        return self._objects

    @property
    def synced(self) -> bool:
        """Whether all was listed once."""
        return self._synced.is_set()

    @property
    def age_s(self) -> float:
        """Since the API server last said anything; up to 75 s in a calm. Infinite before sync."""
        return time.monotonic() - self._heard_s if self.synced else float("inf")

    def listen(self, listener: Listener[T]) -> None:
        """Tell of changes from now on; not of what stays equal. It must not raise or block."""
        self._listeners.append(listener)

    async def wait_synced(self) -> None:
        await self._synced.wait()

    async def run(self) -> None:
        """List and watch until cancelled; no failure of the API server ends it."""
        breaks = 0
        while True:
            heard_s = self._heard_s
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except KubeExpired:
                log.info("%s: too old to go on; listing again", self._path)
                self._version = ""
            except OSError as error:
                self._complain(str(error), renewed=self._heard_s > heard_s)
            breaks = 0 if self._heard_s > heard_s else breaks + 1
            if breaks and breaks % BREAKS_BEFORE_LIST == 0:
                self._version = ""
            longest = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2**breaks)
            await asyncio.sleep(longest * random.uniform(0.5, 1.0))  # noqa: S311 - no secret

    def _complain(self, what: str, *, renewed: bool) -> None:
        """Once, and now and then while it lasts; anew when it was well in between."""
        now_s = time.monotonic()
        if what == self._said and not renewed and now_s - self._said_s < SAID_AGAIN_S:
            return
        self._said, self._said_s = what, now_s
        log.warning("%s; going on", what)

    async def _list(self) -> None:
        """Everything, chunk by chunk, and then at once in place of what was kept."""
        found: dict[str, T] = {}
        params = {**self._selectors, "limit": str(CHUNK)}
        while True:
            raw = await self._kube.get(self._path, params)
            chunk = _decoded(raw, _List, self._path)
            for item in chunk.items or ():
                key, kept = self._read(item)
                if kept is not None:
                    found[key] = kept
            if not chunk.metadata.continue_:
                break
            params["continue"] = chunk.metadata.continue_
        gone = self._objects.keys() - found.keys()
        for key in sorted(gone):
            self._put(key, None)
        for key, kept in found.items():
            self._put(key, kept)
        self._version = chunk.metadata.version
        self.lists += 1
        self._heard_s = time.monotonic()
        self._synced.set()

    async def _watch(self) -> None:
        """Until the stream ends, which the API server does now and then."""
        params = {
            **self._selectors,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(WATCH_S),
        }
        lines = cast("Any", self._kube.stream(self._path, params))
        async with aclosing(lines):
            async for line in lines:
                self._fold(_decoded(line, _Event, self._path))
                self._heard_s = time.monotonic()

    def _fold(self, event: _Event) -> None:
        if event.type == "ERROR":
            said = _decoded(event.object, _Status, self._path)
            raise refused(f"watch {self._path}", said.code, said.message, said.reason)
        if event.type != "BOOKMARK":
            key, kept = self._read(event.object)
            self._put(key, None if event.type == "DELETED" else kept)
        self._version = _decoded(event.object, _Head, self._path).metadata.version

    def _read(self, raw: msgspec.Raw) -> tuple[str, T | None]:
        """Key and what is kept; an object that does not fit its model is counted, and not kept."""
        meta = _decoded(raw, _Head, self._path).metadata
        key = f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
        try:
            if issubclass(self._kind, msgspec.Struct):
                return key, self._keep(msgspec.json.decode(raw, type=self._kind))
            return key, self._keep(self._kind(msgspec.json.decode(raw)))
        except (msgspec.MsgspecError, ValueError) as error:
            self.unreadable += 1
            log.warning("%s %s is passed over: %s", self._path, key, error)
            return key, None

    def _put(self, key: str, after: T | None) -> None:
        before = self._objects.get(key)
        if before == after:
            return
        if after is None:
            del self._objects[key]
        else:
            self._objects[key] = after
        for listener in self._listeners:
            listener(key, before, after)


S = TypeVar("S", bound=msgspec.Struct)


def _decoded(raw: bytes | msgspec.Raw, kind: type[S], path: str) -> S:
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.MsgspecError as error:
        raise KubeUnreachable(f"{path}: not the answer of an API server ({error})") from error


def _path(kind: type[Any], namespace: str) -> str:
    info = api_info(kind)
    group = info.resource
    base = f"/apis/{group.group}/{group.version}" if group.group else f"/api/{group.version}"
    within = f"/namespaces/{namespace}" if namespace else ""
    return f"{base}{within}/{info.plural}"
