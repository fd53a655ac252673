"""The bridge's server over real sockets: limits, errors, TLS that rotates, a stop that waits."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme

from scheduler_bridge import http
from scheduler_bridge.http import BadQuestion, HttpServer, HttpSettings
from scheduler_bridge.metrics import HTTP_TABLE, Metrics
from scheduler_bridge.tls import TlsFiles
from tests.support import patient

LOOPBACK = "127.0.0.1"


async def echo(body: bytes) -> bytes:
    if body == b"bad":
        raise BadQuestion("the body says bad; say something else")
    if body == b"bug":
        raise KeyError("bug")
    return body


@asynccontextmanager
async def serving(
    handler: http.Handler = echo, **settings: Any
) -> AsyncIterator[tuple[HttpServer, Metrics]]:
    metrics = Metrics(HTTP_TABLE)
    server = HttpServer(
        HttpSettings(**settings), {"/echo": handler}, metrics, lambda: True, lambda: True
    )
    await server.start()
    try:
        yield server, metrics
    finally:
        await server.stop()


async def ask(
    server: HttpServer, body: bytes = b"{}", path: str = "/echo", context: Any = None
) -> tuple[int, bytes]:
    kind = "http" if context is None else "https"
    connector = aiohttp.TCPConnector(ssl=True if context is None else context)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.post(f"{kind}://{LOOPBACK}:{server.port}{path}", data=body) as answer,
    ):
        return answer.status, await answer.read()


async def until(check: Callable[[], bool], what: str) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + patient(10)
    while not check():
        assert loop.time() < end, f"not within 10 s: {what}"
        await asyncio.sleep(0.01)


def outcomes(metrics: Metrics) -> dict[tuple[str, str], float]:
    return {
        (one.labels["path"], one.labels["outcome"]): one.value
        for family in metrics.registry.collect()
        for one in family.samples
        if one.name == "slackwater_bridge_http_answers_total"
    }


async def test_each_failure_is_told_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(max_body_bytes=1024) as (server, metrics):
        assert await ask(server, b'{"a":1}') == (200, b'{"a":1}')
        assert await ask(server, b"bad") == (
            400, b'{"error":"the body says bad; say something else"}',
        )  # fmt: skip
        assert (await ask(server, b"x" * 1025))[0] == 413
        status, said = await ask(server, path="/ecko")
        assert (status, b"/echo" in said) == (404, True)
        status, said = await ask(server, b"bug")
        assert (status, b"KeyError" in said) == (500, False), "inner workings are in the log only"
        async with aiohttp.ClientSession() as session:
            base = f"http://{LOOPBACK}:{server.port}"
            async with session.get(f"{base}/echo") as answer:
                assert answer.status == 405
            async with session.get(f"{base}/metrics") as answer:
                assert "slackwater_bridge_http_seconds_bucket" in await answer.text()
    assert "a question on /echo failed" in caplog.text
    assert outcomes(metrics) == {
        ("/echo", "ok"): 1, ("/echo", "bad"): 1, ("/echo", "large"): 1, ("/echo", "failed"): 1,
        ("other", "no_path"): 1, ("/echo", "no_path"): 1,
    }  # fmt: skip


async def test_an_answer_that_takes_too_long_is_given_up() -> None:
    async def never(body: bytes) -> bytes:
        await asyncio.Event().wait()
        return body

    async with serving(never, timeout_s=0.05) as (server, metrics):
        status, said = await ask(server)
        assert (status, b"0.05 s" in said) == (408, True)
    assert outcomes(metrics) == {("/echo", "slow"): 1}


async def test_a_stop_lets_the_answers_under_way_finish_and_takes_nothing_new() -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(body: bytes) -> bytes:
        asked.set()
        await go_on.wait()
        return body

    async with serving(slowly) as (server, _):
        under_way = asyncio.create_task(ask(server))
        await asked.wait()
        stopping = asyncio.create_task(server.stop())
        await until(lambda: not (server._runner and server._runner.sites), "no longer listening")
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(LOOPBACK, server.port)
        assert not under_way.done()
        go_on.set()
        assert await under_way == (200, b"{}")
        await stopping


async def test_probes_see_that_we_leave_before_we_do() -> None:
    async with serving(leave_s=1.0) as (server, _), aiohttp.ClientSession() as session:
        url = f"http://{LOOPBACK}:{server.port}"
        async with session.get(f"{url}/readyz") as answer:
            assert answer.status == 200
        stopping = asyncio.create_task(server.stop())
        await asyncio.sleep(0)
        async with session.get(f"{url}/readyz") as answer:
            assert answer.status == 503
        async with session.get(f"{url}/healthz") as answer:
            assert answer.status == 200
        assert await ask(server) == (200, b"{}")
        stopping.cancel()


async def test_a_taken_address_is_told_with_what_to_do() -> None:
    async with serving() as (server, metrics):
        second = HttpServer(HttpSettings(port=server.port), {}, metrics, lambda: True, lambda: True)
        with pytest.raises(ValueError, match=f"cannot listen on 127.0.0.1:{server.port}.*another"):
            await second.start()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"port": 70_000}, "allowed: 0 to 65535"),
        ({"timeout_s": 0.0}, "timeout_s is 0.0; allowed: 0.01 to 60"),
        ({"max_body_bytes": 1}, "max_body_bytes is 1; allowed: 1024"),
        ({"client_names": frozenset({"a"})}, "give a client CA"),
    ],
)
def test_bad_settings_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        HttpSettings(**given)


class Authorities:
    """TLS files of a server, as a secret is mounted, and clients of several authorities."""

    def __init__(self, folder: Path) -> None:
        self.files = TlsFiles(folder / "tls.crt", folder / "tls.key", folder / "ca.crt")

    def serve_by(self, ours: trustme.CA, clients: trustme.CA) -> None:
        """Replace the files, as kubelet does: each by a new one."""
        pair = ours.issue_cert(LOOPBACK)
        self._put(self.files.certificate, b"".join(c.bytes() for c in pair.cert_chain_pems))
        self._put(self.files.key, pair.private_key_pem.bytes())
        assert self.files.client_ca is not None
        self._put(self.files.client_ca, clients.cert_pem.bytes())

    @staticmethod
    def _put(path: Path, content: bytes) -> None:
        fresh = path.with_suffix(".new")
        fresh.write_bytes(content)
        fresh.replace(path)


def trusting(server: trustme.CA, client: trustme.CA | None = None, name: str = "x") -> Any:
    context = ssl.create_default_context()
    server.configure_trust(context)
    if client is not None:
        client.issue_cert("client.invalid", common_name=name).configure_cert(context)
    return context


async def files_were(metrics: Metrics, fate: str) -> None:
    def counted() -> bool:
        name = "slackwater_bridge_tls_reads_total"
        return bool(metrics.registry.get_sample_value(name, {"fate": fate}))

    await until(counted, f"files are {fate}")


async def test_certificates_and_the_clients_authority_rotate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "ROTATION_S", 0.02)
    old, new, old_clients, new_clients = (trustme.CA() for _ in range(4))
    mounted = Authorities(tmp_path)
    mounted.serve_by(old, old_clients)
    async with serving(tls=mounted.files) as (server, metrics):
        assert (await ask(server, context=trusting(old, old_clients)))[0] == 200
        assert (await ask(server, context=trusting(old)))[0] == 403, "it showed no certificate"
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await ask(server, context=trusting(old, new_clients))

        mounted.files.key.write_bytes(b"half writ")
        await files_were(metrics, "refused")
        assert (await ask(server, context=trusting(old, old_clients)))[0] == 200

        mounted.serve_by(new, new_clients)
        await files_were(metrics, "used")
        assert (await ask(server, context=trusting(new, new_clients)))[0] == 200
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await ask(server, context=trusting(new, old_clients))
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await ask(server, context=trusting(old, new_clients))


async def test_of_an_authoritys_clients_only_the_named_may_ask(tmp_path: Path) -> None:
    ours, clients = trustme.CA(), trustme.CA()
    mounted = Authorities(tmp_path)
    mounted.serve_by(ours, clients)
    names = frozenset({"system:kube-scheduler"})
    async with serving(tls=mounted.files, client_names=names) as (server, metrics):
        scheduler = trusting(ours, clients, "system:kube-scheduler")
        assert (await ask(server, context=scheduler))[0] == 200
        status, said = await ask(server, context=trusting(ours, clients, "system:node:n1"))
        assert (status, b"system:kube-scheduler" in said) == (403, True)
    assert outcomes(metrics)["/echo", "forbidden"] == 1


def test_files_that_are_no_good_are_refused_at_the_start(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path / "none.crt", tmp_path / "none.key")
    with pytest.raises(ValueError, match=r"none\.crt.*cannot be used"):
        HttpServer(HttpSettings(tls=files), {}, Metrics(HTTP_TABLE), lambda: True, lambda: True)
