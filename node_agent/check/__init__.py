"""What this machine lets the agent do, and what each lack disables; nothing is changed by looking.

`slackwater node check` calls `look`. One question a function, grouped by what they ask: the kernel,
its control groups, this process, the neighbours. A new question is one function and its place in
`QUESTIONS`.
"""

from __future__ import annotations

from node_agent.check import groups, kernel, neighbours, process
from node_agent.check.finding import Asked, Finding

QUESTIONS = (*kernel.QUESTIONS, *groups.QUESTIONS, *process.QUESTIONS, *neighbours.QUESTIONS)


def look(asked: Asked) -> list[Finding]:
    """All findings, in order."""
    return [finding for question in QUESTIONS for finding in question(asked)]


def sufficient(findings: list[Finding]) -> bool:
    """Whether nothing essential is lacking."""
    return not any(each.essential and not each.good for each in findings)
