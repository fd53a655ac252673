"""Every test of the second machine passed or is another kernel's; nothing is skipped silently."""

from __future__ import annotations

from pathlib import Path

from tests.node_agent.kernel import OTHER_KERNEL
from tests.vm.tally import Tally, read


def report(folder: Path, *cases: str) -> Tally:
    path = folder / "junit.xml"
    path.write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    return read(path)


def case(name: str, inside: str = "") -> str:
    return f'<testcase classname="t" name="{name}">{inside}</testcase>'


def skip(reason: str) -> str:
    return f'<skipped type="pytest.skip" message="{reason}">where</skipped>'


def test_passed_and_other_kernels_make_up_what_was_collected(tmp_path: Path) -> None:
    figure = '<properties><property name="cut" value="9 ms"/></properties>'
    counts = report(tmp_path, case("a", figure), case("b", skip(f"{OTHER_KERNEL}v1 only")))
    assert counts.passed == ("t::a",)
    assert counts.elsewhere == (("t::b", "v1 only"),)
    assert counts.figures == ("a: cut 9 ms",)
    assert counts.faults(2) == []


def test_a_plain_skip_a_failure_and_an_error_are_faults(tmp_path: Path) -> None:
    counts = report(
        tmp_path,
        case("a"),
        case("b", skip("NOT RUN: no root")),
        case("c", '<failure message="x"/>'),
        case("d", '<error message="x"/>'),
    )
    assert counts.faults(4) == [f"failed or skipped: t::{name}" for name in "bcd"]


def test_a_test_that_never_reported_is_a_fault(tmp_path: Path) -> None:
    assert report(tmp_path, case("a")).faults(2) == ["1 tests reported there, 2 collected here"]


def test_nothing_passed_is_a_fault(tmp_path: Path) -> None:
    assert report(tmp_path).faults(0) == ["no test passed"]
