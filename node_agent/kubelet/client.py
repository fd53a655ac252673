"""One HTTPS endpoint of Kubernetes, asked by GET: the kubelet, or the API server.

`node_agent.kubelet.watch` calls it from a thread of its own; nothing else may. Built on the
standard library's client: the agent's own bound on memory has no room for more (docs/decisions).
Tokens, certificates and the CA are read again when their files change, for all of them rotate.
"""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit

from node_agent import plain_file

STALL_S = 5.0  # without a byte
WHOLE_S = 15.0  # for the whole answer, however it drips
ANSWER_BYTES = 32 << 20
TOKEN_BYTES = 64 << 10
_CHUNK_BYTES = 1 << 18
_REMEDIES: dict[int, str] = {
    HTTPStatus.UNAUTHORIZED: "it does not know this token or certificate; see docs/nodes.md",
    HTTPStatus.FORBIDDEN: "the role may not read this; give it what docs/nodes.md says",
    HTTPStatus.NOT_FOUND: "it serves no such path; check the URL and the node's name",
}


class KubeError(RuntimeError):
    """Nothing usable was answered; the message says by whom, why, and what to do."""


@dataclass(frozen=True, slots=True)
class Access:
    """Where an endpoint is and how it is trusted. All paths are of files."""

    url: str
    token_file: str = ""  # "": none is sent
    ca_file: str = ""  # "": the machine's own authorities
    cert_file: str = ""
    key_file: str = ""  # "": within cert_file
    server_name: str = ""  # what its certificate says; "": the URL's host
    insecure: bool = False  # its certificate is not looked at

    def check(self) -> None:
        """Raises ValueError saying what is wrong with it."""
        parts = urlsplit(self.url)
        if parts.scheme not in ("https", "http") or not parts.hostname:
            raise ValueError(f"{self.url!r}: want a URL such as https://127.0.0.1:10250")
        if parts.path.strip("/") or parts.query or parts.username:
            raise ValueError(f"{self.url!r}: want scheme, host and port alone")
        if parts.scheme == "http" and self.token_file:
            raise ValueError(f"{self.url!r}: a token would travel in the open; say https")


class Client:
    """Keeps one connection; any fault closes it, the next call opens another."""

    def __init__(self, access: Access, clock: Callable[[], float] = time.monotonic) -> None:
        access.check()
        self._access = access
        self._clock = clock
        self._connection: http.client.HTTPConnection | None = None
        self._stamps: tuple[plain_file.Stamp, ...] = ()

    def get(self, path: str) -> bytes:
        """The whole body of a 200. Raises `KubeError`."""
        try:
            return self._ask(path)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            said = str(error) or type(error).__name__
            raise KubeError(f"{self._access.url}{path}: {said}") from None
        except KubeError:
            self.close()
            raise

    def close(self) -> None:
        """Drop the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, path: str) -> bytes:
        until = self._clock() + WHOLE_S
        headers = {"Accept": "application/json", "User-Agent": "slackwater-node"}
        if self._access.token_file:
            headers["Authorization"] = f"Bearer {_token(self._access.token_file)}"
        response = self._request(path, headers)
        body = self._body(response, until)
        if response.status != HTTPStatus.OK:
            self.close()
            remedy = _REMEDIES.get(response.status, "see its own log")
            raise KubeError(f"{self._access.url}{path}: answered {response.status}: {remedy}")
        return body

    def _request(self, path: str, headers: dict[str, str]) -> http.client.HTTPResponse:
        """Sends; once more on a new connection where the old one was closed while it was idle."""
        stamps = self._files()
        if stamps != self._stamps:
            self.close()
        fresh = self._connection is None
        if self._connection is None:
            self._connection = self._connect()
            self._stamps = stamps
        try:
            self._connection.request("GET", path, headers=headers)
            return self._connection.getresponse()
        except (ConnectionError, ssl.SSLError):
            self.close()
            if fresh:
                raise
        return self._request(path, headers)

    def _body(self, response: http.client.HTTPResponse, until: float) -> bytes:
        parts: list[bytes] = []
        size = 0
        while part := response.read1(_CHUNK_BYTES):
            parts.append(part)
            size += len(part)
            if size > ANSWER_BYTES:
                raise KubeError(f"{self._access.url}: an answer above {ANSWER_BYTES} bytes")
            if self._clock() > until:
                raise KubeError(f"{self._access.url}: no whole answer within {WHOLE_S:.0f} s")
        if response.length:
            raise KubeError(f"{self._access.url}: the answer ended {response.length} bytes early")
        response.close()  # the connection is free for the next question
        return b"".join(parts)

    def _connect(self) -> http.client.HTTPConnection:
        parts = urlsplit(self._access.url)
        host = parts.hostname or ""
        if parts.scheme == "http":
            return http.client.HTTPConnection(host, parts.port, timeout=STALL_S)
        name = self._access.server_name or host
        return _Named(host, parts.port, context=_context(self._access), name=name)

    def _files(self) -> tuple[plain_file.Stamp, ...]:
        """What the files of the TLS context look like; a rotated one looks otherwise."""
        access = self._access
        names = filter(None, (access.ca_file, access.cert_file, access.key_file))
        return tuple(plain_file.stamp(name) for name in names)


class _Named(http.client.HTTPSConnection):
    """TLS with the name that the other side's certificate carries, which need not be its host."""

    def __init__(self, host: str, port: int | None, *, context: ssl.SSLContext, name: str) -> None:
        super().__init__(host, port, timeout=STALL_S, context=context)
        self._tls, self._name = context, name

    def connect(self) -> None:
        """Connect, and speak TLS to that name."""
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._name)


def _context(access: Access) -> ssl.SSLContext:
    # Not ssl.create_default_context: its strict flag refuses the kubelet's self-signed certificates
    # even where their very authority was given.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if access.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif access.ca_file:
        context.load_verify_locations(access.ca_file)
    else:
        context.load_default_certs()
    if access.cert_file:
        context.load_cert_chain(access.cert_file, access.key_file or None)
    return context


def _token(path: str) -> str:
    """Read at each request: it is rotated under the same name. Its text never enters a message."""
    raw = plain_file.read(path, TOKEN_BYTES).strip()
    if not raw or not all(0x21 <= byte <= 0x7E for byte in raw):
        raise ValueError(f"{path} holds no token; check the mount")
    return raw.decode("ascii")
