"""Tests of the law: what is folded, what is decided, and that it is always the same."""
