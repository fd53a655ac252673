"""`python -m node_agent`: the same as `slackwater node`."""

from __future__ import annotations

from node_agent.cli import app

app(prog_name="slackwater node")
