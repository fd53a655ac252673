"""What others wrote, and errors, as one line of text that can do nothing to a terminal. Pure.

Called wherever a note, an author or a name is shown: a newline would forge a line of the answer;
and by the commands that end with one line of what is wrong.
"""

from __future__ import annotations


def one_line(text: str) -> str:
    """Control characters, newlines too, as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def of_error(error: Exception) -> str:
    """What it says, without line breaks; of the system's, the file and the words alone."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return one_line(f"{error.filename}: {error.strerror}")
    return " ".join(str(error).split())
