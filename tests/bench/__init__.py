"""Benches, `python -m tests.bench.NAME`: one JSON line at the end, exit 1 for a missed goal."""
