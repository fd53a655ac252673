"""`/healthz`, `/readyz` and `/metrics` of a process of this shell, on one small HTTP server."""

from __future__ import annotations

import logging
from collections.abc import Callable

from aiohttp import web

from streams.metrics import Metrics

log = logging.getLogger(__name__)


class HealthServer:
    """``live`` and ``ready`` say "" or what is wrong; the server answers 200 or 503 with that."""

    def __init__(
        self,
        host: str,
        port: int,
        metrics: Metrics,
        live: Callable[[], str],
        ready: Callable[[], str],
    ) -> None:
        self._host = host
        self._port = port
        self._metrics = metrics
        self._live = live
        self._ready = ready
        self._runner: web.AppRunner | None = None

    async def start(self) -> int:
        """Serve; returns the port (a free one when asked for 0). Raises OSError if it is taken."""
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metricsz)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port)
        await site.start()
        port: int = self._runner.addresses[0][1]
        log.info("metrics and health on http://%s:%d", self._host, port)
        return port

    async def stop(self) -> None:
        """Stop serving."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, _request: web.Request) -> web.Response:
        return _verdict(self._live())

    async def _readyz(self, _request: web.Request) -> web.Response:
        return _verdict(self._ready())

    async def _metricsz(self, _request: web.Request) -> web.Response:
        return web.Response(
            body=self._metrics.text(),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )


def _verdict(wrong: str) -> web.Response:
    return web.Response(status=503 if wrong else 200, text=f"{wrong or 'ok'}\n")
