"""Benches, `python -m tests.bench.NAME`: each ends with a line of JSON, exit 1 for a missed goal."""
