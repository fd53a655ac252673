"""`slackwater slis`: PromQL in, records of topic `slis` out, against a server that answers as
Prometheus 2.42 did when it was asked the same.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from typer.testing import CliRunner

from schemas import codec
from schemas.errors import BadPolicy
from schemas.records import Sli
from schemas.topics import full_name
from streams import slis_cli
from streams.dev_broker import DevBroker
from streams.slis_prometheus import BadAnswer, Prometheus, by_label, check_url
from streams.slis_queries import read
from streams.slis_sums import slis_of
from streams.topic_reader import CannotRun, whole
from streams.topics_admin import create
from tests.streams.fleet_kit import ROOT, until

AT_S = 1_796_040_043
FILE = """
services:
  - workload: shop/web
    node_label: node
    window_ms: 30000
    p99: {query: p99, unit: s}
    requests: {query: requests, unit: per_s}
    errors: {query: errors, unit: per_s, missing: zero}
"""


def vector(*pairs: tuple[str, str], label: str = "node") -> bytes:
    """An instant vector as Prometheus writes it."""
    result = [{"metric": {label: name}, "value": [AT_S, value]} for name, value in pairs]
    data = {"resultType": "vector", "result": result}
    return json.dumps({"status": "success", "data": data}).encode()


REFUSED = (
    b'{"status":"error","errorType":"bad_data","error":"invalid parameter \\"query\\": 1:9: '
    b'parse error: unclosed left parenthesis"}'
)
SCALAR = b'{"status":"success","data":{"resultType":"scalar","result":[1796050847.785,"1"]}}'
MATRIX = (
    b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"node":"n0"},'
    b'"values":[[1796039923,"0"],[1796039928,"100"]]}]}}'
)


class StandIn:
    """Answers POST /api/v1/query by the text of the query."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, bytes]] = {
            "p99": (200, vector(("n0", "0.4920000000000001"), ("n1", "0.0495"))),
            "requests": (200, vector(("n0", "20"), ("n1", "20"))),
            "errors": (200, vector(("n0", "1"))),
        }
        self.asked: list[dict[str, list[str]]] = []
        self.tokens: list[str | None] = []
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                form = parse_qs(self.rfile.read(size).decode())
                stand_in.asked.append(form)
                stand_in.tokens.append(self.headers.get("Authorization"))
                status, body = stand_in.answers[form["query"][0]]
                known = self.path == "/api/v1/query"
                self.send_response(status if known else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def prometheus() -> Iterator[StandIn]:
    stand_in = StandIn()
    yield stand_in
    stand_in.close()


@pytest.fixture
def queries(tmp_path: Path) -> Path:
    path = tmp_path / "queries.yaml"
    path.write_text(FILE)
    return path


def shown(prometheus: StandIn, queries: Path, *more: str) -> Any:
    arguments = ["--prometheus", prometheus.url, "--queries", str(queries), "--once", *more]
    return CliRunner().invoke(slis_cli.app, arguments)


def test_once_json_shows_what_it_would_publish(prometheus: StandIn, queries: Path) -> None:
    done = shown(prometheus, queries, "--json")
    assert done.exit_code == 0, done.output
    said = [json.loads(line) for line in done.stdout.splitlines()]
    ends = {one.pop("end_ms") for one in said}
    assert said == [
        {"workload": "shop/web", "node": "n0", "window_ms": 30_000, "p50_us": 0,
         "p99_us": 492_000, "requests": 600, "errors": 30, "p90_us": -1, "p999_us": -1},
        {"workload": "shop/web", "node": "n1", "window_ms": 30_000, "p50_us": 0,
         "p99_us": 49_500, "requests": 600, "errors": 0, "p90_us": -1, "p999_us": -1},
    ]  # fmt: skip
    assert len(ends) == 1
    assert ends.pop() % 5_000 == 0, "two readers say the same of the same moment"
    assert len({form["time"][0] for form in prometheus.asked}) == 1


def test_other_percentiles_are_said_where_they_are_asked_and_measured(
    prometheus: StandIn, queries: Path
) -> None:
    more = "    p50: {query: p50, unit: ms}\n    p999: {query: p999, unit: s}\n"
    queries.write_text(FILE + more)
    prometheus.answers["p50"] = (200, vector(("n0", "12"), ("n1", "NaN")))
    prometheus.answers["p999"] = (200, vector(("n1", "0.09")))
    done = shown(prometheus, queries, "--json")
    said = [codec.decode(Sli, line.encode()) for line in done.stdout.splitlines()]
    found = {one.node: (one.p50_us, one.p90_us, one.p99_us, one.p999_us) for one in said}
    assert found == {"n0": (12_000, -1, 492_000, -1), "n1": (0, -1, 49_500, 90_000)}
    queries.write_text(FILE + "    p90: {query: p90, unit: weeks}\n")
    with pytest.raises(BadPolicy, match=r"p90\.unit is 'weeks'; allowed: ms or s or us"):
        read(queries)


async def test_published_records_are_read_back(
    prometheus: StandIn, queries: Path, broker: DevBroker, prefix: str
) -> None:
    await create(broker.bootstrap, prefix, 3, None, "name: default")
    api = Prometheus(prometheus.url, 5.0)
    rounds = slis_cli.Rounds(api, read(queries))
    topic = full_name(prefix, "slis")
    assert await slis_cli.publish(rounds, 5, broker.bootstrap, topic, once=True) == 2
    found = [record async for record in whole(broker.bootstrap, topic)]
    said = sorted((record.key, codec.decode(Sli, record.value).p99_us) for record in found)
    assert said == [(b"n0", 492_000), (b"n1", 49_500)]
    assert all(codec.encoding_of(record.headers) == codec.ENC_JSON for record in found)


def test_an_absent_prometheus_is_a_gap(queries: Path, prometheus: StandIn) -> None:
    prometheus.close()
    done = shown(prometheus, queries, "--json")
    assert isinstance(done.exception, CannotRun)
    assert "nothing to say: shop/web errors:" in str(done.exception)
    assert "does not answer" in str(done.exception)
    assert done.stdout == ""


async def test_it_goes_on_when_prometheus_comes_back(prometheus: StandIn, queries: Path) -> None:
    api = Prometheus(prometheus.url, 5.0)
    rounds = slis_cli.Rounds(api, read(queries))
    await api.start()
    try:
        good = prometheus.answers["p99"]
        prometheus.answers["p99"] = (503, b"upstream is away")
        assert await rounds.one(AT_S) == []
        (told,) = rounds.complaints
        assert told.startswith("shop/web p99: status 503 and no answer of Prometheus")
        prometheus.answers["p99"] = good
        assert len(await rounds.one(AT_S)) == 2
        assert rounds.complaints == set()
    finally:
        await api.close()


async def test_a_token_travels_and_is_read_anew(prometheus: StandIn, tmp_path: Path) -> None:
    token = tmp_path / "token"
    api = Prometheus(prometheus.url, 5.0, token)
    await api.start()
    try:
        for text in ("one\n", "two"):
            token.write_text(text)
            await api.ask("p99", AT_S, "node")
        token.unlink()
        with pytest.raises(BadAnswer, match="token"):
            await api.ask("p99", AT_S, "node")
    finally:
        await api.close()
    assert prometheus.tokens == ["Bearer one", "Bearer two"]


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (400, REFUSED, "refused: bad_data: invalid parameter .*unclosed left parenthesis"),
        (200, SCALAR, "a scalar and no instant vector"),
        (200, MATRIX, "a matrix and no instant vector"),
        (200, b"<html>", "status 200 and no answer of Prometheus"),
        (200, b"\xff\xfe", "no answer of Prometheus"),
        (302, b"{}", "refused: status 302"),
        (200, b'{"status":"success"}', "no instant vector"),
        (200, vector(("n0", "1"), label="instance"), "a series without the label node"),
        (200, vector(("n0", "1"), ("n0", "2")), "two series of node n0: sum them"),
        (200, vector(("n0", "much")), "no instant vector"),
    ],
)
def test_bad_answers_are_named(status: int, body: bytes, told: str) -> None:
    with pytest.raises(BadAnswer, match=told):
        by_label(status, body, "node")


def test_what_one_node_says_wrong_costs_that_node_alone(queries: Path) -> None:
    (service,) = read(queries).services
    p99 = {"n0": 0.1, "n1": float("inf"), "n2": 0.1, "n3": float("nan"), "n4": float("nan"),
           "n5": 0.1, "a b": 0.1, "n7": 4_000.0}  # fmt: skip
    requests = {"n0": 1.0, "n1": 1.0, "n2": -1.0, "n3": 1.0, "n4": 0.0, "a b": 1.0, "n6": 1.0,
                "n7": 1.0, "n8": 1.0}  # fmt: skip
    p99["n8"] = 0.2
    found, wrong = slis_of(service, p99, requests, {"n8": 2.0}, AT_S * 1000)
    assert [(one.node, one.p99_us, one.requests) for one in found] == [
        ("n0", 100_000, 30), ("n4", 0, 0),
    ]  # fmt: skip
    assert [text.partition(": ")[0] for text in wrong] == [
        f"shop/web on {name}" for name in ("a b", "n1", "n2", "n3", "n5", "n6", "n7", "n8")
    ]
    assert "errors 60; allowed: 0 to 30" in wrong[-1]
    assert "requests says nothing of it" in wrong[4]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("unit: s}", "unit: minutes}", r"p99.unit is 'minutes'; allowed: ms or s or us"),
        ("window_ms: 30000", "window_ms: 1", "window_ms is 1; allowed: a whole number from 100"),
        ("node_label: node", "label: node", "services.0..label is no key"),
        ("    errors: {query: errors, unit: per_s, missing: zero}\n", "", "errors is missing"),
        ("missing: zero", "missing: one", "missing is 'one'; allowed: gap or zero"),
        ("query: p99", "query: ''", "query is ''; allowed: text of 1 to 8192"),
        (FILE, "services: []", "services is empty; allowed: 1 to 256 services"),
        (FILE, FILE + FILE.partition("services:\n")[2], r"services\[1\].workload is shop/web"),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_naming_key_and_range(
    queries: Path, before: str, after: str, told: str
) -> None:
    queries.write_text(FILE.replace(before, after))
    with pytest.raises(BadPolicy, match=told):
        read(queries)


@pytest.mark.parametrize("url", ["prometheus:9090", "ftp://a", "http://", "http://a/?x=1"])
def test_a_bad_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="--prometheus"):
        check_url(url)


@pytest.mark.parametrize("wild", [1e16, 1e305, float("inf"), float("nan"), -1.0])
def test_r9_one_wild_value_leaves_out_one_node_and_nothing_else(queries: Path, wild: float) -> None:
    (service,) = read(queries).services
    calm = {"n0": 0.01, "n1": 0.01}
    asked, failed = {"n0": 5.0, "n1": 5.0}, {"n0": 0.0, "n1": 0.0}
    for p99, requests, errors in (
        ({**calm, "n0": wild}, asked, failed),
        (calm, {**asked, "n0": wild}, failed),
        (calm, asked, {**failed, "n0": wild}),
    ):
        found, wrong = slis_of(service, p99, requests, errors, 0)
        assert [one.node for one in found] == ["n1"]
        (told,) = wrong
        assert "allowed: numbers from 0 to 1e+15" in told
        assert len(told) < 120


def test_ratios_and_units(queries: Path) -> None:
    text = FILE.replace("unit: s}", "unit: ms}")
    text = text.replace("requests, unit: per_s", "requests, unit: count")
    queries.write_text(text.replace("errors, unit: per_s", "errors, unit: ratio"))
    (service,) = read(queries).services
    (one,), wrong = slis_of(service, {"n0": 12.5}, {"n0": 200.4}, {"n0": 0.05}, AT_S * 1000)
    assert (one.p99_us, one.requests, one.errors, wrong) == (12_500, 200, 10, [])


async def test_the_command_goes_on_through_an_absence_and_ends_when_told(
    prometheus: StandIn, queries: Path, broker: DevBroker, prefix: str
) -> None:
    await create(broker.bootstrap, prefix, 1, None, "name: default")
    command = [
        sys.executable, "-m", "streams.slis_cli", "--prometheus", prometheus.url, "--queries",
        str(queries), "--every-s", "1", "--brokers", broker.bootstrap, "--prefix", prefix,
    ]  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    topic = full_name(prefix, "slis")

    async def said() -> int:
        found = [record async for record in whole(broker.bootstrap, topic)]
        return len({codec.decode(Sli, record.value).end_ms for record in found})

    async def more_than(count: int) -> int:
        for _ in range(120):
            now = await said()
            if now > count:
                return now
            await asyncio.sleep(0.25)
        raise AssertionError(f"no more than {count} rounds in half a minute")

    try:
        before = await more_than(0)
        good = prometheus.answers["p99"]
        prometheus.answers["p99"] = (503, b"away")
        asked = len(prometheus.asked)
        await until(lambda: len(prometheus.asked) > asked + 6, 30, "two rounds without an answer")
        prometheus.answers["p99"] = good
        await more_than(max(before, await said()))
        process.terminate()  # raises if it has ended by itself
        _, told = await asyncio.wait_for(process.communicate(), 20)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0
    text = told.decode()
    assert text.count("shop/web p99: status 503") == 1, "said once"
    assert "every service is heard of again" in text
