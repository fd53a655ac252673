"""`python -m node_agent`: the same as `slackwater node`."""

from __future__ import annotations

import sys

from node_agent.cli import main

sys.exit(main(sys.argv[1:]))
