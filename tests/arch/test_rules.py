"""The house rules catch what they are for and let the allowed through."""

from __future__ import annotations

import pytest

from tests.arch import rules


def long_function(lines: int) -> str:
    return "def f():\n" + "    x = 0\n" * (lines - 1)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("x = 0\n" * 400, []),
        ("x = 0\n" * 401, ["1: module of 401 lines (at most 400): split it"]),
        (long_function(60), []),
        (long_function(61), ["1: f has 61 lines (at most 60): split it"]),
        ("class A:\n    async " + long_function(61).replace("\n", "\n    "), ["2: f has 61"]),
    ],
)
def test_sizes(source: str, found: list[str]) -> None:
    got = list(rules.sizes(source))
    assert len(got) == len(found)
    assert all(line.startswith(start) for line, start in zip(got, found, strict=True))


def test_docstring() -> None:
    assert list(rules.docstring('"""What it is for."""\n')) == []
    assert len(list(rules.docstring("x = 1\n"))) == 1
    assert len(list(rules.docstring("# a comment is no docstring\n"))) == 1


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("# TODO later\n", ["1"]),
        ("x = 0\n# FIXME\n", ["2"]),
        ("# TODO(#12) later\n", []),
        ("# the method of a todo list\n", []),
    ],
)
def test_words(source: str, lines: list[str]) -> None:
    assert [finding.partition(":")[0] for finding in rules.words(source)] == lines


@pytest.mark.parametrize(
    ("source", "count"),
    [("print('x')\n", 1), ("def f():\n    return print\n", 0), ("'print(x)'\n", 0)],
)
def test_prints(source: str, count: int) -> None:
    assert len(list(rules.prints(source))) == count


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "import os.path",
        "from asyncio import run",
        "from concurrent.futures import Executor",
        "def f():\n    import random",
        "import numpy, socket",
    ],
)
def test_impure_imports_are_found(source: str) -> None:
    assert len(list(rules.impure_imports(source))) == 1


@pytest.mark.parametrize(
    "source",
    ["import numpy", "from agents.time import x", "from . import time", "import ostrich"],
)
def test_pure_imports_pass(source: str) -> None:
    assert list(rules.impure_imports(source)) == []


@pytest.mark.parametrize(
    "source",
    [
        "a.sum()",
        "np.sum(a)",
        "a.sum(dtype=np.float64)",
        "a.sum(axis=0)",
        "np.add.reduce(a)",
        "a.mean()",
        "np.std(a)",
        "np.dot(a, b)",
        "a @ b",
        "a @= b",
        "np.exp(a)",
        "math.log(a)",
        "np.power(a, 2)",
        "a ** 2",
        "2 ** a",
        "a **= 2",
        "np.percentile(a, 95)",
        "from numpy import exp\nexp(a)",
        "from numpy import sum as total\ntotal(a)",
    ],
)
def test_float_reductions_are_found(source: str) -> None:
    assert len(list(rules.float_reductions(source))) == 1


@pytest.mark.parametrize(
    "source",
    [
        "a.sum(dtype=np.int64)",
        "np.sum(a, axis=0, dtype=np.int64)",
        "np.add.reduceat(a, i, dtype=np.int64)",
        "np.cumsum(a)",
        "np.bincount(a, weights=w)",
        "a + b * c / d",
        "np.sqrt(a)",
        "2 ** 20",
        "batch.log.entries()",
        "np.sort(a)[i]",
        "np.add.at(a, i, b)",
    ],
)
def test_exact_arithmetic_passes(source: str) -> None:
    assert list(rules.float_reductions(source)) == []


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("def f(x):\n    return x > 37\n", "2"),
        ("def f(x, limit=30):\n    return x\n", "1"),
        ("y = x * 0.65\n", "1"),
        ("y = x > -7\n", "1"),
        ("y = x[z > 7]\n", "1"),
        ("x *= 10\n", "1"),
        ("A, b = 1, 5  # b is no constant\n", "1"),
        ('WINDOW = 300\nx = 0\n"""Of x."""\n', "1"),
        ("\n\nWINDOW = 300\n", "3"),
        ("def f():\n    LIMIT = 37  # only modules and classes have constants\n", "2"),
        ("class P:\n    period: int = 30  # a default hides in a field\n", "2"),
    ],
)
def test_thresholds_are_found(source: str, line: str) -> None:
    assert [finding.partition(":")[0] for finding in rules.thresholds(source)] == [line]


@pytest.mark.parametrize(
    "source",
    [
        "y = x * 1000 // 100 + 1 - 2\n",
        "y = x == -1\n",
        "y = float(x) * 1.0\n",
        "y = True\n",
        "y = '37'\n",
        "WINDOW = 300  # five minutes, as the peer's aggregate\n",
        "# Five minutes.\nWINDOW: int = 300\n",
        "# Bucket edges.\nEDGES = (\n    3,\n    7,\n)\n",
        "EDGES = (\n    3,  # why\n    7,\n)\n",
        "class Kind:\n    TICK = 7  # on the wire\n",
        "ZERO = 0\n",
        'LARGEST = 1 << 50\n"""One pebibyte."""\n',
        "A, B, C = 1, 2, 4  # bits\n",
        "y = x >> 6 & 7\n",
        "x <<= 10\n",
        "y = x[:, 4] + x[5]\n",
    ],
)
def test_conversions_and_named_constants_pass(source: str) -> None:
    assert list(rules.thresholds(source)) == []
