"""A stand-in for YARN's ResourceManager over HTTP, as far as the bridge sees one.

Paths, shapes and manners are those of Hadoop 3.3: containers go where there is room by what the
ResourceManager was told; a NodeManager that falls silent is LOST once its expiry is over, and only
then are its containers written off; a container that dies is reported with the NodeManager's next
heartbeat; after a restart NodeManagers register again with their own setting, and bring what runs.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import Any, Self

from aiohttp import web

HEARTBEAT_S = 0.1


@dataclass(slots=True)
class Container:
    """A piece of work; ``dead``: its process has ended, and its NodeManager has not said so yet."""

    id: str
    memory_mb: int
    vcores: int
    dead: bool = False


@dataclass(slots=True)
class Manager:
    """A NodeManager, as it is (``runs``) and as the ResourceManager knows it."""

    host: str
    own: tuple[int, int]
    """Memory in MB and cores that it registers with."""
    runs: dict[str, Container] = field(default_factory=dict)
    alive: bool = True
    state: str = "NEW"
    total: tuple[int, int] = (0, 0)
    known: dict[str, Container] = field(default_factory=dict)
    beat_s: float = 0.0
    started: set[str] = field(default_factory=set)

    @property
    def id(self) -> str:
        return f"{self.host}:8041"

    def used(self) -> tuple[int, int]:
        """By the ResourceManager's books."""
        every = self.known.values()
        return sum(one.memory_mb for one in every), sum(one.vcores for one in every)


class YarnServer:
    """Starts on a free port of loopback; `url` is what the bridge is given."""

    def __init__(self, *, expiry_s: float = 1.0, seed: int = 1) -> None:
        self.managers: dict[str, Manager] = {}
        self.asks: deque[Container] = deque()
        self.updates: list[tuple[str, int, int]] = []
        self.refuse_updates = False
        self.ha_state = "ACTIVE"
        self._expiry_s = expiry_s
        self._dice = Random(seed)
        self._names = itertools.count(1)
        self._started_ms = 0
        self._runner: web.AppRunner | None = None
        self._task: asyncio.Task[None] | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        await self.start()
        self._task = asyncio.create_task(self._live())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.stop()

    async def start(self) -> None:
        """Begin a run: it knows no NodeManager until one registers."""
        self._started_ms = max(self._started_ms + 1, time.time_ns() // 1_000_000)
        for manager in self.managers.values():
            manager.state, manager.known, manager.total = "NEW", {}, (0, 0)
        app = web.Application()
        app.router.add_get("/ws/v1/cluster/info", self._info)
        app.router.add_get("/ws/v1/cluster/nodes", self._nodes)
        app.router.add_get("/ws/v1/cluster/metrics", self._metrics)
        app.router.add_post("/ws/v1/cluster/nodes/{id}/resource", self._update)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Its work goes on running on the machines."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    def join(self, host: str, memory_mb: int = 1024, vcores: int = 1) -> Manager:
        """A NodeManager with this setting of its own; it registers with its next heartbeat."""
        manager = self.managers[host] = Manager(host, (memory_mb, vcores))
        return manager

    def ask(self, memory_mb: int, vcores: int) -> Container:
        """An application asks for a container; it starts when and where there is room."""
        wanted = Container(f"container_{next(self._names)}", memory_mb, vcores)
        self.asks.append(wanted)
        return wanted

    def die(self, host: str, container: str) -> None:
        """A container's process ends without anybody's doing."""
        self.managers[host].runs[container].dead = True

    def lose(self, host: str) -> None:
        """A machine goes dark, and all on it."""
        manager = self.managers[host]
        manager.alive = False
        manager.runs.clear()

    async def _live(self) -> None:
        while True:
            if self._runner is not None:
                self._beat(time.monotonic())
                self._schedule()
            await asyncio.sleep(HEARTBEAT_S)

    def _beat(self, now_s: float) -> None:
        for manager in self.managers.values():
            if not manager.alive:
                if manager.state == "RUNNING" and now_s - manager.beat_s > self._expiry_s:
                    manager.state, manager.known = "LOST", {}
                continue
            manager.beat_s = now_s
            if manager.state != "RUNNING":
                manager.state, manager.total = "RUNNING", manager.own
            for name in [one.id for one in manager.runs.values() if one.dead]:
                del manager.runs[name]
            manager.known = dict(manager.runs)

    def _schedule(self) -> None:
        """First come, first served; an ask that fits nowhere lets the others pass."""
        for wanted in list(self.asks):
            fits = [
                manager
                for manager in self.managers.values()
                if manager.state == "RUNNING"
                and manager.alive
                and manager.used()[0] + wanted.memory_mb <= manager.total[0]
                and manager.used()[1] + wanted.vcores <= manager.total[1]
            ]
            if fits:
                chosen = self._dice.choice(fits)
                chosen.runs[wanted.id] = chosen.known[wanted.id] = wanted
                chosen.started.add(wanted.id)
                self.asks.remove(wanted)

    async def _info(self, _: web.Request) -> web.Response:
        info = {"id": self._started_ms, "startedOn": self._started_ms, "state": "STARTED"}
        return web.json_response({"clusterInfo": {**info, "haState": self.ha_state}})

    async def _metrics(self, _: web.Request) -> web.Response:
        running = sum(len(one.known) for one in self.managers.values())
        said = {"containersAllocated": running, "containersPending": len(self.asks)}
        return web.json_response({"clusterMetrics": said})

    async def _nodes(self, _: web.Request) -> web.Response:
        known = [self._line(one) for one in self.managers.values() if one.state != "NEW"]
        return web.json_response({"nodes": {"node": known} if known else None})

    def _line(self, manager: Manager) -> dict[str, Any]:
        memory_mb, vcores = manager.used()
        lost = manager.state == "LOST"
        total = (0, 0) if lost else manager.total
        return {
            "rack": "/default-rack",
            "state": manager.state,
            "id": manager.id,
            "nodeHostName": manager.host,
            "nodeHTTPAddress": "" if lost else f"{manager.host}:8042",
            "lastHealthUpdate": int(manager.beat_s * 1000),
            "version": "3.3.6",
            "healthReport": "",
            "numContainers": len(manager.known),
            "usedMemoryMB": memory_mb,
            "availMemoryMB": total[0] - memory_mb,
            "usedVirtualCores": vcores,
            "availableVirtualCores": total[1] - vcores,
        }

    async def _update(self, request: web.Request) -> web.Response:
        if self.refuse_updates or request.query.get("user.name") != "yarn":
            return _wrong(403, "ForbiddenException", "User is not authorized.")
        manager = next(
            (one for one in self.managers.values() if one.id == request.match_info["id"]), None
        )
        if manager is None or manager.state != "RUNNING":
            return _wrong(
                404, "NotFoundException", f"nodeId, {request.match_info['id']}, is not found"
            )
        said = await request.json()
        memory_mb, vcores = said["resource"]["memory"], said["resource"]["vCores"]
        manager.total = (memory_mb, vcores)
        self.updates.append((manager.host, memory_mb, vcores))
        return web.json_response({"memory": memory_mb, "vCores": vcores})


def _wrong(status: int, kind: str, message: str) -> web.Response:
    said = {
        "exception": kind,
        "message": message,
        "javaClassName": f"org.apache.hadoop.yarn.webapp.{kind}",
    }
    return web.json_response({"RemoteException": said}, status=status)
