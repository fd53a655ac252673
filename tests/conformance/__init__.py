"""The peer's figures, run through the law."""
