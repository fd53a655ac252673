"""Admission against a real API server and scheduler."""
