"""The daemon on a machine: measures (`signals/`), obeys (`actuators/`), decides alone if it must.

Started by `slackwater node run` or `python -m node_agent`; imports `schemas` and `agents` only.
"""
