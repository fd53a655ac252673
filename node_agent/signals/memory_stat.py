"""Memory of each group by kind, children included, page cache apart: memory.stat.

Used = inactive_anon + active_anon + unevictable: what cannot be had back without swap or a kill.
tmpfs and shared memory lie on the anon lists and are in it. The dearest file of all: read at most
once a second, however short the period. The kernel writes the five lists side by side, so that
what every second needs is one search; the other figures are looked for in their turn.
"""

from __future__ import annotations

from node_agent.signals.base import GroupSource, Input, Parse, Value, number_after

NAME = "memory_stat"
_LISTS = ("inactive_anon", "active_anon", "inactive_file", "active_file", "unevictable")
_LISTS_BYTES = 220  # five names and five numbers of up to 20 digits


def used(prefix: str) -> Parse:
    """A parser of (used) in bytes; ``prefix`` stands before the hierarchical lines."""
    inactive, active, _, _, unevictable = (f"{prefix}{name}".encode() for name in _LISTS)
    first = b"\n" + inactive + b" "

    def parse(data: bytes) -> tuple[Value, ...]:
        at = data.find(first)
        words = data[at : at + _LISTS_BYTES].split(None, 10)
        if at >= 0 and len(words) > 9 and words[2] == active and words[8] == unevictable:
            return (int(words[1]) + int(words[3]) + int(words[9]),)
        parts = [
            number_after(data, b"\n" + name + b" ") for name in (inactive, active, unevictable)
        ]
        return (None if None in parts else sum(part for part in parts if part is not None),)

    return parse


def line(name: str) -> Parse:
    """A parser of one line, alone."""
    key = f"\n{name} ".encode()

    def parse(data: bytes) -> tuple[Value, ...]:
        return (number_after(data, key),)

    return parse


def refaults(prefix: str) -> Parse:
    """A parser of (pages of page cache read again soon after they had been dropped)."""
    file, both = (f"\n{prefix}workingset_refault{end} ".encode() for end in ("_file", ""))

    def parse(data: bytes) -> tuple[Value, ...]:
        found = number_after(data, file)
        return (number_after(data, both) if found is None else found,)  # one line before 5.9

    return parse


def _source(column: str, v1: Parse, v2: Parse) -> GroupSource:
    return GroupSource((column,), Input(("memory_stat",), v1), Input(("memory_stat",), v2))


SOURCES = (
    _source("memory_used_bytes", used("total_"), used("")),
    _source("memory_file_bytes", line("total_cache"), line("file")),
    _source("memory_inactive_file_bytes", line("total_inactive_file"), line("inactive_file")),
    _source("memory_shmem_bytes", line("total_shmem"), line("shmem")),
    _source("memory_unevictable_bytes", line("total_unevictable"), line("unevictable")),
    _source("refault_pages", refaults("total_"), refaults("")),
)
