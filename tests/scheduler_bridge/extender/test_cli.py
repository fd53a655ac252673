"""`slackwater extender run` refuses what cannot work before it starts, and says what to do."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from scheduler_bridge.extender.cli import app


def kubeconfig(folder: Path) -> Path:
    """Of an API server that nobody asks here."""
    path = folder / "kubeconfig"
    said = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    path.write_text(yaml.safe_dump(said))
    return path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--brokers", "nonsense"], "nonsense"),
        (["--host", "0.0.0.0"], "anyone could have pods bound"),
        (["--key", "a.pem"], "TLS needs --certificate and --key"),
        (["--client-name", "x"], "give a client CA too"),
        (["--timeout-s", "0"], "timeout_s is 0.0; allowed: 0.01"),
        (["--cpu-name", "cpu"], "want one with a domain"),
        (["--annotate", "--annotations-per-s", "0"], "writes_per_s is 0; allowed: 1 to 1000"),
        (["--certificate", "none.crt", "--key", "none.key"], "TLS files none.crt, none.key"),
        (["--kubeconfig", "/nowhere"], "/nowhere"),
    ],
)
def test_what_cannot_work_is_refused(tmp_path: Path, words: list[str], said: str) -> None:
    given = ["run", "--port", "0", "--kubeconfig", str(kubeconfig(tmp_path)), *words]
    result = CliRunner().invoke(app, given)
    assert result.exit_code == 2
    assert said in result.output


def test_a_port_that_someone_has_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = str(stranger.getsockname()[1])
        given = ["run", "--port", port, "--kubeconfig", str(kubeconfig(tmp_path))]
        result = CliRunner().invoke(app, given)
    assert result.exit_code == 2
    assert f"cannot listen on 127.0.0.1:{port}" in result.output
