"""Benches: `python -m tests.bench.NAME`; each ends with one line of JSON, exit 1 when a goal is missed."""
