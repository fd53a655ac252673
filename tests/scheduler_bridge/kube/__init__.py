"""Tests of what needs no API server."""
