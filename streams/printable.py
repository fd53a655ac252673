"""What others wrote, as one line of text that can do nothing to a terminal. Pure.

Called wherever a note, an author or a name is shown: a newline would forge a line of the answer.
"""

from __future__ import annotations


def one_line(text: str) -> str:
    """Control characters, newlines too, as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
