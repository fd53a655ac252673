"""What `slackwater bridge run` refuses before anything starts, and how it says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from scheduler_bridge.build import OWN_OPTIONS, SinkName
from scheduler_bridge.cli import app


def refusal(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["run", *arguments])
    assert done.exit_code == 2, done.output
    assert "Traceback" not in done.output
    return done.output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--record", "x"), "--record belongs to --sink dry-run"),
        (("--quiet",), "--quiet belongs to --sink dry-run"),
        (("--kubeconfig", "/not/there"), "/not/there not found; give a valid --kubeconfig"),
        (("--context", "c"), "--context needs --kubeconfig"),
        ((), "this is no pod"),
        (("--cpu-name", "cpu"), "resource name 'cpu': want one with a domain"),
        (("--mid-cpu-name", "kubernetes.io/batch-cpu"), "each must be another"),
        (("--rate", "0"), "patches a second: 0; allowed: 1 to 10000"),
    ],
)
def test_the_kubernetes_sink_refuses(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], says: str
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert says in refusal("--sink", "kubernetes", *arguments)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("]", "while parsing"),
        ("a", "kubeconfig"),
        ("{}", "it has no 'clusters'; give a valid --kubeconfig"),
        ("{clusters: [], contexts: [], current-context: gone}", "Context 'gone' not found"),
        (
            (
                "{clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1',"
                " certificate-authority: /not/there}}], contexts: [{name: c, context: {cluster: c,"
                " user: u}}], users: [{name: u, user: {token: t}}], current-context: c}"
            ),
            "a file it names: [Errno 2] No such file or directory: '/not/there'",
        ),
        (
            (
                "{clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}],"
                " contexts: [{name: c, context: {cluster: c}}], current-context: c}"
            ),
            "context c has no user",
        ),
    ],
)
def test_a_broken_kubeconfig_is_named(tmp_path: Path, text: str, says: str) -> None:
    broken = tmp_path / "config"
    broken.write_text(text)
    said = refusal("--sink", "kubernetes", "--kubeconfig", str(broken))
    assert says in said
    assert "bridge: " in said


def test_the_dry_run_takes_no_option_of_a_cluster() -> None:
    for name in OWN_OPTIONS[SinkName.kubernetes]:
        option = "--" + name.replace("_", "-")
        assert f"{option} belongs to --sink kubernetes" in refusal(option, "5")
