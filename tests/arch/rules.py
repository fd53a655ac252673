"""The house rules as functions of a source text; each yields findings as `line: what, and instead`.

Called by test_tidy.py on the five packages and by test_rules.py on small bad snippets.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from itertools import zip_longest

MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60

PURE_FORBIDDEN = frozenset(
    """faust mode aiokafka asyncio time datetime random secrets os io pathlib socket logging
    subprocess threading multiprocessing concurrent shutil tempfile""".split()
)

# Sums of floats differ by SIMD width, exp and its kin by libm: neither may decide anything.
SUMMING = frozenset("sum nansum prod nanprod reduce reduceat cumprod".split())
INEXACT = frozenset(
    """mean nanmean std nanstd var nanvar average median nanmedian percentile nanpercentile quantile
    nanquantile dot vdot inner matmul tensordot einsum convolve exp exp2 expm1 log log2 log10 log1p
    power float_power pow""".split()
)
INTEGER_TYPES = frozenset("int64 int32 uint64 uint32 int16 uint16 int8 uint8 intp int".split())

# Counting, rounding and unit conversion; anything else is a threshold or a size.
PLAIN_NUMBERS = frozenset(
    {0, 1, 2, 8, 16, 24, 32, 60, 63, 64, 100, 1000, 1023, 1024, 10_000, 60_000, 100_000}
    | {1_000_000, 3_600_000, 86_400_000, 1_000_000_000}
)

_OF_WORDS = (ast.LShift, ast.RShift, ast.BitAnd)

Finding = str


def sizes(source: str) -> Iterator[Finding]:
    """A module fits on a few screens, a function on one."""
    lines = source.count("\n")
    if lines > MODULE_LINES_MAX:
        yield f"1: module of {lines} lines (at most {MODULE_LINES_MAX}): split it"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                yield (
                    f"{node.lineno}: {node.name} has {length} lines "
                    f"(at most {FUNCTION_LINES_MAX}): split it"
                )


def docstring(source: str) -> Iterator[Finding]:
    """A module says what it is for and who calls it."""
    if not ast.get_docstring(ast.parse(source)):
        yield "1: no module docstring: say what it is for and who calls it"


def words(source: str) -> Iterator[Finding]:
    """Work left over has an issue number."""
    for number, line in enumerate(source.splitlines(), 1):
        if re.search(r"\b(TODO|FIXME|XXX|HACK)\b(?!\(#\d+\))", line):
            yield f"{number}: work left over without an issue: write TODO(#12), or do it"


def prints(source: str) -> Iterator[Finding]:
    """Only command line modules talk to the terminal."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and _name(node.func) == "print":
            yield f"{node.lineno}: print() outside the command line: return it, log it or count it"


def impure_imports(source: str) -> Iterator[Finding]:
    """What may not be imported where things are said and decided; also inside functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        else:
            continue
        for name in names:
            if name.partition(".")[0] in PURE_FORBIDDEN:
                yield f"{node.lineno}: import of {name}: it reaches the world; pass a value instead"


def float_reductions(source: str) -> Iterator[Finding]:
    """Reductions and functions whose float result depends on the machine.

    Allowed with an explicit integer dtype on the same call (`dtype=np.int64`).
    """
    tree = ast.parse(source)
    imported = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in {"numpy", "math"}
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, (ast.BinOp, ast.AugAssign)):
            yield from _operator(node)
        elif isinstance(node, ast.Call):
            yield from _reduction(node, imported)


def _operator(node: ast.BinOp | ast.AugAssign) -> Iterator[Finding]:
    if isinstance(node.op, ast.MatMult):
        yield f"{node.lineno}: @ sums floats in an order of its own: use an integer sum"
    elif isinstance(node.op, ast.Pow):
        sides = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.target,)
        if not all(_is_int(side) for side in sides):
            yield f"{node.lineno}: ** is not exact for floats: multiply, or use a constant table"


def _reduction(node: ast.Call, imported: dict[str, str]) -> Iterator[Finding]:
    if isinstance(node.func, ast.Attribute):
        called = node.func.attr
    elif isinstance(node.func, ast.Name) and node.func.id in imported:
        called = imported[node.func.id]
    else:
        return
    if called in SUMMING and not _has_integer_dtype(node):
        yield f"{node.lineno}: {called}() without an integer dtype: add dtype=np.int64"
    elif called in INEXACT and not _has_integer_dtype(node):
        yield f"{node.lineno}: {called}() differs between machines: use integers or a table"


def _has_integer_dtype(node: ast.Call) -> bool:
    return any(
        keyword.arg == "dtype" and _name(keyword.value) in INTEGER_TYPES
        for keyword in node.keywords
    )


def thresholds(source: str) -> Iterator[Finding]:
    """A number that is no unit conversion comes from policy, or is a named constant with a reason.

    Such a constant is assigned at module or class level to UPPER_CASE names, with a comment on its
    lines or just above, or a string just below. Shifts, bit masks and places in an array are no
    thresholds.
    """
    tree = ast.parse(source)
    commented = _comment_lines(source)
    allowed: set[int] = set()
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    scopes: list[ast.Module | ast.ClassDef] = [tree, *classes]
    for scope in scopes:
        for statement, following in zip_longest(scope.body, scope.body[1:]):
            if not _names_constant(statement):
                continue
            lines = range(statement.lineno - 1, (statement.end_lineno or statement.lineno) + 1)
            if commented.isdisjoint(lines) and not _is_string(following):
                yield f"{statement.lineno}: a constant without a comment: say why this value"
            allowed.update(id(node) for node in ast.walk(statement))
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, _OF_WORDS):
            allowed.update((id(node.left), id(node.right)))
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, _OF_WORDS):
            allowed.add(id(node.value))
        elif isinstance(node, ast.Subscript):
            places = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            allowed.update(id(place) for place in places if _is_int(place))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in allowed and _is_threshold(node):
            yield (
                f"{node.lineno}: the number {node.value!r} in the code: take it from policy, "
                "or make it an UPPER_CASE constant of the module with a comment"
            )


def _names_constant(statement: ast.stmt) -> bool:
    """An assignment to UPPER_CASE names that holds a number worth a reason."""
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    else:
        return False
    names = [
        _name(name)
        for target in targets
        for name in (target.elts if isinstance(target, ast.Tuple) else [target])
    ]
    upper = all(re.fullmatch(r"_?[A-Z][A-Z0-9_]*", name) for name in names)
    numbers = (node for node in ast.walk(statement) if isinstance(node, ast.Constant))
    return upper and any(_is_threshold(node) for node in numbers)


def _is_threshold(node: ast.Constant) -> bool:
    value = node.value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return value not in PLAIN_NUMBERS


def _is_string(node: ast.stmt | None) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _is_int(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int)


def _comment_lines(source: str) -> set[int]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.start[0] for token in tokens if token.type == tokenize.COMMENT}


def _name(node: ast.expr) -> str:
    """The last part of a name: `int64` of `np.int64`, `print` of `print`; "" for anything else."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
