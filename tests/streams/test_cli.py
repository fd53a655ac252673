"""The `slackwater` command: lazy, one-line errors, clean on Ctrl-C."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint, version
from pathlib import Path

import pytest
import typer

from streams import cli

NEEDS = "needs the package 'no_such_engine'"

DEMO = """
import signal, typer
app = typer.Typer()

@app.command()
def a(x: int = 0) -> None:
    if x == 1: raise ValueError("first line\\nsecond line")
    if x == 2: raise RuntimeError("a bug")
    if x == 3: signal.raise_signal(signal.SIGINT)
    if x == 4: raise typer.Exit(7)
    if x == 5: raise typer.Abort
    typer.echo(f"ran {x}")

@app.command()
def b(words: list[str]) -> None:
    typer.echo(" ".join(words))
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    """Sub-commands of this test alone, in place of the installed ones."""
    (tmp_path / "sw_ok.py").write_text(DEMO)
    (tmp_path / "sw_lacking.py").write_text("import no_such_engine.parts\n")
    (tmp_path / "sw_odd.py").write_text("app = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    modules = {
        "ok": "sw_ok",
        "worker": "sw_lacking",
        "node": "sw_lacking",
        "topics": "sw_lacking",
        "gone": "sw_gone",
        "odd": "sw_odd",
    }
    points = [EntryPoint(name, f"{module}:app", cli.GROUP) for name, module in modules.items()]
    monkeypatch.setattr(cli, "entry_points", lambda **_: points)
    return points


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.run(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


def test_help_lists_all_and_imports_none(
    installed: list[EntryPoint], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "--help")
    assert (code, err) == (0, "")
    assert all(point.name in out for point in installed)
    assert cli.COMMANDS["worker"].help in out
    assert not {"sw_ok", "sw_lacking", "sw_odd"} & sys.modules.keys()
    # Known commands come in the order of the table, others after them.
    assert out.index("worker") < out.index("topics ") < out.index("node ") < out.index("gone")


def test_only_the_invoked_command_is_imported(
    installed: list[EntryPoint], capsys: pytest.CaptureFixture[str]
) -> None:
    assert installed
    assert run(capsys, "ok", "a", "--x", "0") == (0, "ran 0\n", "")
    del sys.modules["sw_ok"]  # there, or this fails
    assert "sw_lacking" not in sys.modules


def test_arguments_pass_through(
    installed: list[EntryPoint], capsys: pytest.CaptureFixture[str]
) -> None:
    assert installed
    assert run(capsys, "ok", "b", "x", "--", "-y", "z") == (0, "x -y z\n", "")
    code, out, _ = run(capsys, "ok", "b", "--help")
    assert code == 0
    assert "Usage: slackwater ok b" in out
    code, out, _ = run(capsys, "ok", "--help")
    assert code == 0
    assert "Usage: slackwater ok [OPTIONS] COMMAND" in out


@pytest.mark.parametrize(
    ("x", "code", "err"),
    [
        ("1", 1, "slackwater: first line second line\n"),
        ("2", 1, "slackwater: RuntimeError: a bug\n"),
        ("3", 130, ""),
        ("4", 7, ""),
        ("5", 130, ""),
    ],
)
def test_ends_are_one_line(
    installed: list[EntryPoint], capsys: pytest.CaptureFixture[str], x: str, code: int, err: str
) -> None:
    assert installed
    assert run(capsys, "ok", "a", "--x", x) == (code, "", err)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["worker"], f"'worker' {NEEDS}: pip install slackwater[streams]"),
        (["node"], f"'node' {NEEDS}: pip install slackwater[node]"),
        (["topics"], f"'topics' {NEEDS}: pip install slackwater"),
        (["gone"], "'gone' is not part of this installation"),
        (["odd"], "'odd': sw_odd:app is not a typer.Typer"),
    ],
)
def test_a_command_that_cannot_load(
    installed: list[EntryPoint],
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    says: str,
) -> None:
    assert installed
    assert run(capsys, *arguments) == (1, "", f"slackwater: {says}\n")


@pytest.mark.parametrize("arguments", [["nonsense"], ["--nonsense"], ["ok", "a", "--nonsense"]])
def test_usage_errors_are_one_line(
    installed: list[EntryPoint], capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert installed
    code, out, err = run(capsys, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("slackwater: No such ")


def test_debug_shows_the_traceback(
    installed: list[EntryPoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert installed
    monkeypatch.setenv(cli.DEBUG_VARIABLE, "1")
    with pytest.raises(RuntimeError, match="a bug"):
        cli.run(["ok", "a", "--x", "2"])


def test_nothing_said_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys)
    assert code == 2
    assert "Usage: slackwater" in out + err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version") == (0, f"slackwater {version('slackwater')}\n", "")


def test_the_installed_command_loads_no_shell_for_its_help() -> None:
    code = (
        "import sys; from streams.cli import run; code = run(['--help']);"
        "loaded = [m for m in ('faust', 'aiokafka', 'numpy', 'node_agent') if m in sys.modules];"
        "sys.exit(f'loaded {loaded}' if loaded else code)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (answer.returncode, answer.stderr) == (0, "")


def test_a_stub_is_a_typer_app() -> None:
    assert isinstance(cli.build(), typer.Typer)


@pytest.mark.parametrize(("first", "loaded"), [("pass", True), ("hide()", False)])
def test_a_command_does_not_load_pandas_though_it_is_here(first: str, loaded: bool) -> None:
    code = f"""
import sys, pyarrow
from streams.cli import WithoutPandas
def hide(): sys.meta_path.insert(0, WithoutPandas())
{first}
pyarrow.array([1])
print("pandas" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == f"{loaded}\n"
