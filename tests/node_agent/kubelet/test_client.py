"""The client against real TLS: trust, tokens, rotation, and every way to answer badly."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

from node_agent.kubelet import client
from node_agent.kubelet.client import Access, Client, KubeError
from tests.node_agent.kubelet.server import TOKEN, Kubelet, kubelet

BODY = b'{"kind": "PodList", "items": []}' + b" " * 5000


Ask = Callable[[Access], Client]


@pytest.fixture
def ask() -> Iterator[Ask]:
    """Makes clients whose connections end with the test."""
    made: list[Client] = []

    def make(access: Access) -> Client:
        made.append(Client(access))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Kubelet]:
    with kubelet(tmp_path) as found:
        found.paths["/pods"] = BODY
        yield found


def test_one_connection_serves_many_questions(ask: Ask, server: Kubelet) -> None:
    asking = ask(server.access())
    assert [asking.get("/pods") for _ in range(3)] == [BODY] * 3
    assert len({port for _, port in server.asked}) == 1
    asking.close()
    assert asking.get("/pods") == BODY


def test_chunks_are_put_together(ask: Ask, server: Kubelet) -> None:
    server.mode = "chunked"
    assert ask(server.access()).get("/pods") == BODY


def test_a_certificate_of_another_name_or_authority_is_refused(
    ask: Ask, server: Kubelet, tmp_path: Path
) -> None:
    with pytest.raises(KubeError, match="certificate verify failed"):
        ask(server.access(name="")).get("/pods")  # the URL says an address
    with pytest.raises(KubeError, match="certificate verify failed"):
        ask(server.access(ca=False)).get("/pods")
    assert server.asked == [], "a token went to somebody who is not trusted"
    assert ask(server.access(name="", ca=False, insecure=True)).get("/pods") == BODY


def test_a_client_certificate_stands_for_a_token(ask: Ask, tmp_path: Path) -> None:
    with kubelet(tmp_path, mutual=True) as server:
        server.paths["/pods"], server.token = BODY, None
        with pytest.raises(KubeError):
            ask(server.access(token=False)).get("/pods")
        cert = server.client_certificate()
        asking = ask(server.access(token=False, cert=cert))
        assert asking.get("/pods") == BODY
        server.client_certificate(trustme.CA())  # the file now holds a stranger's
        with pytest.raises(KubeError):
            asking.get("/pods")
        server.client_certificate()
        assert asking.get("/pods") == BODY


def test_a_rotated_token_is_read_at_the_next_question(
    ask: Ask, server: Kubelet, tmp_path: Path
) -> None:
    asking = ask(server.access())
    assert asking.get("/pods") == BODY
    server.token = "another"
    with pytest.raises(KubeError, match="401: it does not know this token") as caught:
        asking.get("/pods")
    assert TOKEN not in str(caught.value)
    (tmp_path / "token.new").write_text("another")
    (tmp_path / "token.new").replace(tmp_path / "token")
    assert asking.get("/pods") == BODY


@pytest.mark.parametrize("text", ["", "\n", "two words", "line\r\nX-Evil: 1", "é", "x" * 70_000])
def test_what_is_no_token_is_never_sent(
    ask: Ask, server: Kubelet, tmp_path: Path, text: str
) -> None:
    (tmp_path / "token").write_text(text)
    with pytest.raises(KubeError, match=r"holds no token; check the mount|larger than"):
        ask(server.access()).get("/pods")
    (tmp_path / "token").unlink()
    with pytest.raises(KubeError, match="No such file"):
        ask(server.access()).get("/pods")
    assert server.asked == []


def test_a_rotated_authority_is_taken_over(ask: Ask, server: Kubelet, tmp_path: Path) -> None:
    good = (tmp_path / "ca.pem").read_bytes()
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    asking = ask(server.access())
    with pytest.raises(KubeError, match="certificate verify failed"):
        asking.get("/pods")
    (tmp_path / "ca.pem").write_bytes(good)
    assert asking.get("/pods") == BODY
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(KubeError):
        asking.get("/pods")


@pytest.mark.parametrize(("status", "word"), [(403, "the role may not"), (500, "see its own log")])
def test_refusals_say_what_to_do(ask: Ask, server: Kubelet, status: int, word: str) -> None:
    server.status = status
    with pytest.raises(KubeError, match=f"answered {status}: {word}"):
        ask(server.access()).get("/pods")
    server.status = 200
    with pytest.raises(KubeError, match="404: it serves no such path"):
        ask(server.access()).get("/pod")


def test_an_answer_that_ends_early_is_none(ask: Ask, server: Kubelet) -> None:
    server.mode = "short"
    asking = ask(server.access())
    with pytest.raises(KubeError, match=r"ended \d+ bytes early"):
        asking.get("/pods")
    server.mode = "good"
    assert asking.get("/pods") == BODY


def test_a_connection_that_closes_without_a_word(ask: Ask, server: Kubelet) -> None:
    asking = ask(server.access())
    asking.get("/pods")
    server.mode = "silent"
    with pytest.raises(KubeError):
        asking.get("/pods")
    assert len(server.asked) == 3, "an idle connection that was closed is tried once more"


def test_slow_and_endless_answers_are_given_up(
    ask: Ask, server: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "WHOLE_S", 0.2)
    server.mode = "drip"
    with pytest.raises(KubeError, match="no whole answer within"):
        ask(server.access()).get("/pods")
    monkeypatch.setattr(client, "STALL_S", 0.2)
    server.mode = "hang"
    with pytest.raises(KubeError, match="timed out"):
        ask(server.access()).get("/pods")
    monkeypatch.setattr(client, "ANSWER_BYTES", 4096)
    server.mode = "good"
    with pytest.raises(KubeError, match="an answer above 4096 bytes"):
        ask(server.access()).get("/pods")


def test_nobody_there(ask: Ask) -> None:
    with socket.socket() as bound:  # and not listening
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(KubeError, match="refused"):
            ask(Access(f"https://127.0.0.1:{bound.getsockname()[1]}")).get("/pods")


def test_the_read_only_port_needs_neither_certificate_nor_token(ask: Ask, tmp_path: Path) -> None:
    with kubelet(tmp_path, tls=False) as server:
        server.paths["/pods"], server.token = BODY, None
        assert ask(server.access(token=False)).get("/pods") == BODY


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("127.0.0.1:10250", "want a URL"),
        ("ftp://x", "want a URL"),
        ("https://", "want a URL"),
        ("https://x/pods", "host and port alone"),
        ("https://user@x", "host and port alone"),
    ],
)
def test_urls_that_cannot_be_meant(url: str, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        Client(Access(url))


def test_a_token_does_not_travel_in_the_open() -> None:
    with pytest.raises(ValueError, match="in the open"):
        Client(Access("http://127.0.0.1:10255", token_file=os.devnull))
