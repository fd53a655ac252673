"""Whether every test of the second machine was accounted for: it passed, or is another kernel's.

Called by `tests.vm.__main__` with the JUnit report that came out. A test for another kernel is one
whose marker says so (`tests.node_agent.kernel`); any other skip counts as a failure.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

from tests.node_agent.kernel import OTHER_KERNEL


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of each test; ``elsewhere``: (test, why it is another kernel's)."""

    passed: tuple[str, ...]
    failed: tuple[str, ...]
    elsewhere: tuple[tuple[str, str], ...]
    figures: tuple[str, ...]  # what tests measured, as `test: name value`

    def faults(self, collected: int) -> list[str]:
        """Why this run does not count; ``collected``: tests found by the machine outside."""
        found = [f"failed or skipped: {name}" for name in self.failed]
        counted = len(self.passed) + len(self.failed) + len(self.elsewhere)
        if counted != collected:
            found.append(f"{counted} tests reported there, {collected} collected here")
        if not self.passed:
            found.append("no test passed")
        return found


def read(report: Path) -> Tally:
    """The counts of one JUnit report. Raises OSError or ET.ParseError when it is none."""
    passed, failed, elsewhere, figures = [], [], [], []
    for case in ET.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname', '')}::{case.get('name', '')}"
        figures += [
            f"{case.get('name', '')}: {each.get('name')} {each.get('value')}"
            for each in case.iter("property")
        ]
        skipped = case.find("skipped")
        reason = "" if skipped is None else skipped.get("message", "")
        if reason.startswith(OTHER_KERNEL):
            elsewhere.append((name, reason.removeprefix(OTHER_KERNEL)))
        elif skipped is None and case.find("failure") is None and case.find("error") is None:
            passed.append(name)
        else:
            failed.append(name)
    return Tally(tuple(passed), tuple(failed), tuple(elsewhere), tuple(figures))
