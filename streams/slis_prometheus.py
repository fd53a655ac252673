"""Instant queries to an API that speaks as Prometheus does (also Thanos, Mimir, VictoriaMetrics).

Used by `streams.slis_cli`. What cannot be used raises `BadAnswer`, in words that name the query.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import msgspec

ANSWER_BYTES = 8 << 20
CHUNK_BYTES = 1 << 16
TOLD_CHARACTERS = 200
OK, LEAST_BAD = 200, 500


class BadAnswer(Exception):
    """No values came of a query; the message says why."""


class _Point(msgspec.Struct):
    value: tuple[float, str]
    metric: dict[str, str] = {}  # msgspec copies an empty default


class _Data(msgspec.Struct):
    resultType: str  # noqa: N815 - the API's name
    result: msgspec.Raw


class _Answer(msgspec.Struct):
    status: str = ""
    data: msgspec.Raw = msgspec.Raw(b"")
    errorType: str = ""  # noqa: N815 - the API's name
    error: str = ""


def check_url(url: str) -> str:
    """The base without a slash at its end. Raises ValueError for what is none."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        raise ValueError(f"--prometheus {url!r:.120}: want http://host:port or https://host/path")
    return url.rstrip("/")


class Prometheus:
    """One API; `start` first, `close` at the end."""

    def __init__(self, url: str, timeout_s: float, token_file: Path | None = None) -> None:
        self._url = f"{check_url(url)}/api/v1/query"
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._token_file = token_file
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        self._session = aiohttp.ClientSession(timeout=self._timeout)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def ask(self, query: str, at_s: float, label: str) -> dict[str, float]:
        """Value by the value of ``label``, as of ``at_s`` (Unix time). Raises BadAnswer."""
        assert self._session is not None, "start() comes first"
        form = {"query": query, "time": f"{at_s:.3f}"}
        headers = self._headers()
        try:
            async with self._session.post(
                self._url, data=form, headers=headers, allow_redirects=False
            ) as response:
                body = await _limited(response)
                return by_label(response.status, body, label)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            why = str(error) or type(error).__name__
            raise BadAnswer(f"{self._url} does not answer: {why:.{TOLD_CHARACTERS}}") from None

    def _headers(self) -> dict[str, str]:
        """The token is read each time: it may be a new one."""
        if self._token_file is None:
            return {}
        try:
            return {"Authorization": f"Bearer {self._token_file.read_text().strip()}"}
        except OSError as error:
            raise BadAnswer(f"the token cannot be read: {error}") from None


async def _limited(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_chunked(CHUNK_BYTES):
        body += chunk
        if len(body) > ANSWER_BYTES:
            raise BadAnswer(f"an answer of more than {ANSWER_BYTES} bytes; narrow the query")
    return bytes(body)


def by_label(status: int, body: bytes, label: str) -> dict[str, float]:
    """The values of an answer by ``label``. Raises BadAnswer for anything but an instant vector.

    NaN and infinities are values here.
    """
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise BadAnswer(f"status {status} and no answer of Prometheus: {body[:80]!r}") from None
    if status != OK or answer.status != "success":
        told = f"{answer.errorType}: {answer.error}" if answer.error else f"status {status}"
        raise BadAnswer(f"refused: {told:.{TOLD_CHARACTERS}}")
    try:
        data = msgspec.json.decode(answer.data, type=_Data)
        if data.resultType != "vector":
            raise BadAnswer(f"a {data.resultType:.20} and no instant vector: one value a node")
        points = msgspec.json.decode(data.result, type=list[_Point])
        return _named(points, label)
    except (msgspec.DecodeError, ValueError) as error:
        raise BadAnswer(f"no instant vector: {error}") from None


def _named(points: list[_Point], label: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for point in points:
        name = point.metric.get(label)
        if name is None:
            raise BadAnswer(f"a series without the label {label}: {point.metric!r:.80}")
        if name in found:
            raise BadAnswer(f"two series of {label} {name:.80}: sum them by ({label})")
        found[name] = float(point.value[1])
    return found
