"""A real Chromium without a window, driven over its DevTools protocol: clicks, keys, pictures.

A few calls over a websocket, so nothing is needed that is not there: aiohttp speaks it, and Debian
has the browser (`.ci/setup browser`).
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import signal
import tempfile
from asyncio.subprocess import DEVNULL, Process
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
START_S, ANSWER_S = 30.0, 20.0
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
    "--disable-background-networking", "--disable-dev-shm-usage", "--remote-debugging-port=0",
    "about:blank",
)  # fmt: skip
KEYS = {"Escape": 27, "Enter": 13, "Tab": 9, "ArrowLeft": 37, "ArrowRight": 39}


def program() -> str | None:
    """The browser of this machine; None: there is none."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class Browser:
    """One page. ``errors``: what the console said that is wrong; ``loads``: addresses asked for."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._process: Process | None = None
        self._http: aiohttp.ClientSession | None = None
        self._socket: Any = None
        self._reader: asyncio.Task[None] | None = None
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._events: dict[str, asyncio.Event] = {}
        self._session = ""
        self._count = 0
        self.errors: list[str] = []
        self.loads: list[str] = []

    async def __aenter__(self) -> Self:
        profile = f"--user-data-dir={self._folder.name}"
        self._process = await asyncio.create_subprocess_exec(
            self._path, profile, *FLAGS, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True
        )
        address = await asyncio.wait_for(self._address(), START_S)
        self._http = aiohttp.ClientSession()
        self._socket = await self._http.ws_connect(address, max_msg_size=0)
        self._reader = asyncio.create_task(self._read())
        made = await self.call("Target.createTarget", url="about:blank")
        attached = await self.call("Target.attachToTarget", targetId=made["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        if self._socket is not None:
            await self._socket.close()
        if self._http is not None:
            await self._http.close()
        if self._process is not None:
            with suppress(ProcessLookupError):  # and its helpers, which are of its session
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()
        self._folder.cleanup()

    async def call(self, method: str, **params: Any) -> Any:
        """One call of the protocol; its answer. Raises RuntimeError."""
        self._count += 1
        number = self._count
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        said = {"id": number, "method": method, "params": params}
        await self._socket.send_json(said | ({"sessionId": self._session} if self._session else {}))
        return await asyncio.wait_for(answer, ANSWER_S)

    async def open(self, page: Path, width: int = 1400, height: int = 900) -> None:
        """Show a file; returns when it is drawn."""
        self.errors.clear()
        self.loads.clear()
        await self.size(width, height)
        loaded = self._events["Page.loadEventFired"] = asyncio.Event()
        await self.call("Page.navigate", url=page.as_uri())
        await asyncio.wait_for(loaded.wait(), ANSWER_S)
        await self.settle()

    async def size(self, width: int, height: int) -> None:
        """The window's size in CSS pixels."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip

    async def settle(self) -> None:
        """Two frames later: what an event changed is drawn."""
        await self.js("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")

    async def js(self, expression: str) -> Any:
        """The value of an expression in the page. Raises RuntimeError for one that throws."""
        found = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            raise RuntimeError(json.dumps(found["exceptionDetails"])[:500])
        return found["result"].get("value")

    async def text(self, selector: str) -> str:
        """What an element shows."""
        found = await self.js(f"document.querySelector({json.dumps(selector)}).innerText")
        return str(found)

    async def click(self, selector: str) -> None:
        """A click of the mouse in the middle of an element, wherever it lies."""
        x, y, _, _ = await self._box(selector)
        for kind in ("mousePressed", "mouseReleased"):
            await self._mouse(kind, x, y)
        await self.settle()

    async def drag(self, selector: str, begin: float, end: float) -> None:
        """The mouse held down from one share of an element's width to another."""
        x, y, width, _ = await self._box(selector)
        left = x - width / 2
        await self._mouse("mouseMoved", left + width * begin, y)
        await self._mouse("mousePressed", left + width * begin, y)
        for step in range(1, 6):
            at = begin + (end - begin) * step / 5
            await self._mouse("mouseMoved", left + width * at, y)
        await self._mouse("mouseReleased", left + width * end, y)
        await self.settle()

    async def hover(self, selector: str, share: float) -> None:
        """The mouse over one share of an element's width."""
        x, y, width, _ = await self._box(selector)
        await self._mouse("mouseMoved", x - width / 2 + width * share, y)
        await self.settle()

    async def key(self, name: str) -> None:
        """One key, as a keyboard sends it."""
        text = {"Enter": "\r"}.get(name, name if len(name) == 1 else "")
        code = KEYS.get(name, 0)
        common = {"key": name, "windowsVirtualKeyCode": code}
        await self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **common)
        await self.settle()

    async def type(self, text: str) -> None:
        """Letters into what has the focus."""
        await self.call("Input.insertText", text=text)
        await self.settle()

    async def picture(self, *, whole: bool = False) -> bytes:
        """A PNG of the window; or of the whole page, at less than half its size."""
        if not whole:
            found = await self.call("Page.captureScreenshot", format="png")
            return base64.b64decode(found["data"])
        width, height = await self.js("[innerWidth, document.documentElement.scrollHeight]")
        await self.size(int(width), int(height))
        await self.settle()
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 0.42}
        found = await self.call("Page.captureScreenshot", format="png", clip=clip)
        return base64.b64decode(found["data"])

    async def pdf(self) -> bytes:
        """The page as it prints."""
        found = await self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
        return base64.b64decode(found["data"])

    async def _box(self, selector: str) -> tuple[float, float, float, float]:
        """Middle, width and height of an element, scrolled into the window."""
        found = await self.js(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center', behavior: 'instant'});"
            "const b = e.getBoundingClientRect();"
            "return [b.x + b.width / 2, b.y + b.height / 2, b.width, b.height]; })()"
        )
        x, y, width, height = found
        return float(x), float(y), float(width), float(height)

    async def _mouse(self, kind: str, x: float, y: float) -> None:
        held = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
        await self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, buttons=1, **held)

    async def _address(self) -> str:
        """Where it listens, as it writes it into its profile once it does."""
        assert self._process is not None
        told = Path(self._folder.name) / "DevToolsActivePort"
        while len(lines := _words(told)) < 2:
            if self._process.returncode is not None:
                raise RuntimeError(f"{self._path} ended with {self._process.returncode}")
            await asyncio.sleep(0.02)
        return f"ws://127.0.0.1:{lines[0]}{lines[1]}"

    async def _read(self) -> None:
        async for message in self._socket:
            said = json.loads(message.data)
            answer = self._answers.pop(said.get("id", -1), None)
            if answer is not None and not answer.done():
                if "error" in said:
                    answer.set_exception(RuntimeError(str(said["error"])))
                else:
                    answer.set_result(said["result"])
            elif "method" in said:
                self._heard(said["method"], said.get("params", {}))

    def _heard(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"])[:500])
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.errors.append(json.dumps(params["args"])[:500])
        elif method == "Network.requestWillBeSent":
            self.loads.append(params["request"]["url"])
        event = self._events.get(method)
        if event is not None:
            event.set()


def _words(path: Path) -> list[str]:
    """What a file says so far."""
    return path.read_text().split() if path.exists() else []
