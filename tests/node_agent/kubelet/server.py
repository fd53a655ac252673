"""A kubelet to ask: a real TLS server with real certificates, made for one test."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import trustme

from node_agent.kubelet.client import Access

TOKEN = "eyJhbGciOi.test.token"
NAME = "node-1.internal"
Mode = Literal["good", "short", "drip", "hang", "chunked", "silent"]


class Kubelet(ThreadingHTTPServer):
    """Answers ``paths``; ``mode`` says how badly. ``asked`` lists (path, peer's port)."""

    daemon_threads = True

    def __init__(self, directory: Path, *, mutual: bool = False, tls: bool = True) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.directory = directory
        self.paths: dict[str, bytes] = {}
        self.status = 200
        self.mode: Mode = "good"
        self.token: str | None = TOKEN
        self.asked: list[tuple[str, int]] = []
        self.ended = threading.Event()
        self.authority = trustme.CA()
        self.authority.cert_pem.write_to_path(str(directory / "ca.pem"))
        self.clients = trustme.CA()
        (directory / "token").write_text(TOKEN + "\n")
        self.scheme = "https" if tls else "http"
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.authority.issue_cert(NAME, "localhost").configure_cert(context)
            if mutual:
                self.clients.configure_trust(context)
                context.verify_mode = ssl.CERT_REQUIRED
            self.socket = context.wrap_socket(self.socket, server_side=True)

    def get_request(self) -> tuple[socket.socket, Any]:
        """A peer that does not shake hands holds up nobody for long."""
        connection, address = super().get_request()
        connection.settimeout(5)
        return connection, address

    def handle_error(self, request: object, client_address: object) -> None:
        """Broken connections are what is tested; they are no news."""

    def client_certificate(self, authority: trustme.CA | None = None) -> Path:
        """Certificate and key in one file, of an authority that the server knows by default."""
        path = self.directory / "client.pem"
        issued = (authority or self.clients).issue_cert("slackwater-node")
        issued.private_key_and_cert_chain_pem.write_to_path(str(path))
        return path

    def access(
        self, *, token: bool = True, ca: bool = True, cert: Path | None = None,
        name: str = NAME, insecure: bool = False,
    ) -> Access:  # fmt: skip
        return Access(
            f"{self.scheme}://127.0.0.1:{self.server_address[1]}",
            token_file=str(self.directory / "token") if token else "",
            ca_file=str(self.directory / "ca.pem") if ca else "",
            cert_file="" if cert is None else str(cert),
            server_name=name,
            insecure=insecure,
        )


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Kubelet

    def do_GET(self) -> None:
        kubelet = self.server
        kubelet.asked.append((self.path, self.client_address[1]))
        body = kubelet.paths.get(self.path.partition("?")[0])
        status = kubelet.status
        if kubelet.token is not None and self.headers["Authorization"] != f"Bearer {kubelet.token}":
            status, body = 401, b"Unauthorized"
        elif body is None:
            status, body = 404, b"404 page not found"
        if kubelet.mode == "hang":
            kubelet.ended.wait(30)
        if kubelet.mode == "silent":
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        if kubelet.mode == "chunked":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for at in range(0, len(body), 1000):
                part = body[at : at + 1000]
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.write(b"0\r\n\r\n")
            return
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if kubelet.mode == "short":
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
        elif kubelet.mode == "drip":
            for byte in body:
                self.wfile.write(bytes([byte]))
                time.sleep(0.02)  # what a slow peer does
        else:
            self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Tests speak through their assertions."""


@contextmanager
def kubelet(directory: Path, *, mutual: bool = False, tls: bool = True) -> Iterator[Kubelet]:
    """A server for the time of a block."""
    server = Kubelet(directory, mutual=mutual, tls=tls)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.ended.set()
        server.shutdown()
        server.server_close()
        thread.join(5)
