"""Explain: each act has an answer, from topics and from recordings."""
