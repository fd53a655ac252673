"""The one HTTP(S) server of the bridge: JSON questions by POST, JSON answers. No other one is made.

The extender and the webhook give it their routes; it keeps limits of size and time, TLS, who may
ask, health, metrics, and a stop that lets answers under way finish. It never decides anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web
from prometheus_client.exposition import generate_latest

from scheduler_bridge.metrics import Metrics
from scheduler_bridge.tls import RotatingTls, TlsFiles

log = logging.getLogger("slackwater.bridge")
Handler = Callable[[bytes], Awaitable[bytes]]
"""Body of a question to body of its answer (200), both JSON. Raises `BadQuestion`, `Unready`."""

JSON = "application/json"
TEXT = "text/plain; version=0.0.4; charset=utf-8"
HEALTH_PATHS = ("/healthz", "/readyz", "/metrics")
ROTATION_S = 5.0
KEPT_IDLE_S = 120.0  # longer than Go's clients keep a connection (90 s), so that they close first
OUTCOMES = {
    400: "bad", 403: "forbidden", 404: "no_path", 405: "no_path", 408: "slow", 413: "large",
    503: "unready",
}  # fmt: skip


class BadQuestion(Exception):
    """The question cannot be answered; says what is wrong with it. Becomes status 400."""


class Unready(Exception):
    """We cannot answer now; says why, and what is waited for. Becomes status 503."""


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Where we listen and what a question may cost. ``port`` 0 takes a free one.

    With ``tls.client_ca`` only clients that it signed may ask, and of these, where ``client_names``
    is not empty, only those of these common names; health and metrics stay open to probes.
    """

    host: str = "127.0.0.1"
    port: int = 0
    tls: TlsFiles | None = None
    client_names: frozenset[str] = frozenset()
    max_body_bytes: int = 16 << 20
    timeout_s: float = 5.0
    drain_s: float = 10.0  # how long answers under way may take when we stop
    leave_s: float = 0.0  # not ready, still answering: until balancers have seen it

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise ValueError(f"port is {self.port}; allowed: 0 to 65535, 0 takes a free one")
        if not 1024 <= self.max_body_bytes <= 1 << 30:
            raise ValueError(f"max_body_bytes is {self.max_body_bytes}; allowed: 1024 to {1 << 30}")
        for name, least, most in (
            ("timeout_s", 0.01, 60.0), ("drain_s", 0.0, 300.0), ("leave_s", 0.0, 300.0),
        ):  # fmt: skip
            value = getattr(self, name)
            if not least <= value <= most:
                raise ValueError(f"{name} is {value}; allowed: {least} to {most}")
        if self.client_names and (self.tls is None or self.tls.client_ca is None):
            raise ValueError("client names are checked by certificate: give a client CA too")


class HttpServer:
    """`await start()`, answer until `await stop()`; ``alive`` and ``ready`` are asked by probes."""

    def __init__(
        self,
        settings: HttpSettings,
        routes: Mapping[str, Handler],
        metrics: Metrics,
        alive: Callable[[], bool],
        ready: Callable[[], bool],
    ) -> None:
        """``metrics`` has the rows of `metrics.HTTP_TABLE`. Raises ValueError for bad TLS files."""
        self._settings = settings
        self._routes = routes
        self._metrics = metrics
        self._tls = RotatingTls(settings.tls) if settings.tls is not None else None
        self._leaving = False
        self._checks: dict[str, Callable[[], bool]] = {
            "/healthz": alive,
            "/readyz": lambda: ready() and not self._leaving,
        }
        self._runner: web.AppRunner | None = None
        self._rotation: asyncio.Task[None] | None = None
        self.port = 0

    async def start(self) -> int:
        """Listen; returns the port. Raises ValueError when the address cannot be had."""
        app = web.Application(client_max_size=self._settings.max_body_bytes)
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            keepalive_timeout=KEPT_IDLE_S,
            shutdown_timeout=self._settings.drain_s,
        )
        await runner.setup()
        host, port = self._settings.host, self._settings.port
        outer = self._tls.outer if self._tls is not None else None
        try:
            await web.TCPSite(runner, host, port, ssl_context=outer).start()
        except OSError as error:
            await runner.cleanup()
            raise ValueError(
                f"cannot listen on {host}:{port}: {error.strerror or error}; "
                "stop what listens there, or choose another address or port"
            ) from None
        self._runner = runner
        self.port = int(runner.addresses[0][1])
        if self._tls is not None:
            self._rotation = asyncio.create_task(self._rotate(self._tls), name="rotation")
        log.info("answering on %s://%s:%d", "https" if self._tls else "http", host, self.port)
        return self.port

    async def stop(self) -> None:
        """Say not ready, wait ``leave_s``, take nothing new, let answers under way finish."""
        self._leaving = True
        if self._runner is None:
            return
        if self._settings.leave_s > 0:
            log.info("leaving: answering on for %g s", self._settings.leave_s)
        await asyncio.sleep(self._settings.leave_s)
        if self._rotation is not None:
            self._rotation.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._rotation
        await self._runner.cleanup()
        self._runner = None

    async def _rotate(self, tls: RotatingTls) -> None:
        while True:
            await asyncio.sleep(ROTATION_S)
            changed = tls.refresh()
            if changed is not None:
                self._metrics.count("tls_reads", "used" if changed else "refused")

    async def _answer(self, request: web.Request) -> web.Response:
        """Every request ends here, with one answer and one count; nothing else escapes."""
        began = time.perf_counter()
        path = request.path
        if path in HEALTH_PATHS and path not in self._routes:
            return self._health(path)
        try:
            response = await self._routed(request)
        except web.HTTPRequestEntityTooLarge:
            most = self._settings.max_body_bytes
            response = _refusal(413, f"the body is larger than {most} bytes, the most that is read")
        except TimeoutError:
            within = self._settings.timeout_s
            response = _refusal(408, f"no answer within {within} s; ask again")
        except BadQuestion as error:
            response = _refusal(400, str(error))
        except Unready as error:
            response = _refusal(503, str(error))
        except (asyncio.CancelledError, ConnectionError):
            raise
        except Exception:
            log.exception("a question on %s failed", path)
            response = _refusal(500, "the answer failed; the log of the bridge says why")
        known = path if path in self._routes else "other"
        outcome = OUTCOMES.get(response.status, "ok" if response.status < 300 else "failed")
        self._metrics.count("http_answers", known, outcome)
        self._metrics.observe("http_seconds", time.perf_counter() - began, known)
        return response

    async def _routed(self, request: web.Request) -> web.Response:
        handler = self._routes.get(request.path)
        if handler is None:
            known = ", ".join((*self._routes, *HEALTH_PATHS))
            return _refusal(404, f"nothing is asked on {request.path[:200]}; try {known}")
        if request.method != "POST":
            return _refusal(405, f"questions on {request.path} are asked by POST")
        stranger = self._stranger(request)
        if stranger:
            return _refusal(403, stranger)
        async with asyncio.timeout(self._settings.timeout_s):
            answer = await handler(await request.read())
        return web.Response(body=answer, content_type=JSON)

    def _stranger(self, request: web.Request) -> str:
        """Why this client may not ask; "" when it may."""
        tls = self._settings.tls
        if tls is None or tls.client_ca is None:
            return ""
        certificate = request.get_extra_info("peercert")
        if not certificate:
            return "a client certificate is asked for here, and none was shown"
        name = _common_name(certificate)
        wanted = self._settings.client_names
        if wanted and name not in wanted:
            return f"the client {name!r} may not ask; {', '.join(sorted(wanted))} may"
        return ""

    def _health(self, path: str) -> web.Response:
        if path == "/metrics":
            body = generate_latest(self._metrics.registry)
            return web.Response(body=body, headers={"Content-Type": TEXT})
        good = self._checks[path]()
        return web.Response(text="ok\n" if good else "not yet\n", status=200 if good else 503)


def _common_name(certificate: Mapping[str, Any]) -> str:
    said = dict(pair for names in certificate.get("subject", ()) for pair in names)
    return str(said.get("commonName", ""))


def _refusal(status: int, why: str) -> web.Response:
    return web.Response(body=orjson.dumps({"error": why}), status=status, content_type=JSON)
