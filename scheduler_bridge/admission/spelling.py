"""Whether what a profile writes or looks for can stand on an object at all. Pure.

Called by `rules.parse`. The API server takes no other labels: a profile that sets one would have
every pod that it chooses refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from schemas.errors import BadPolicy

if TYPE_CHECKING:
    from scheduler_bridge.admission.rules import Profile, Selector

_WORD = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
KEY = re.compile(rf"((?=[^/]{{1,253}}/){_WORD}(\.{_WORD})*/)?{_NAME}")
VALUE = re.compile(f"({_NAME})?")
SUFFIX = re.compile("([-A-Za-z0-9_.]{0,62}[A-Za-z0-9])?")
OBJECT = re.compile(rf"((?=.{{1,253}}$){_WORD}(\.{_WORD})*)?")
FORMS = {
    KEY: "a key as labels have it, such as example.com/team",
    VALUE: "at most 63 letters, digits, -, _ and ., the first and last a letter or digit",
    SUFFIX: "at most 63 letters, digits, -, _ and ., the last a letter or digit",
    OBJECT: "a name of small letters, digits, - and .",
}


def check(profile: Profile, where: str) -> None:
    """Raises BadPolicy naming ``where``, key and what is allowed."""
    for field, said, form in _words(profile):
        if not form.fullmatch(said):
            raise BadPolicy(f"{where}.{field} is {said!r:.100}; allowed: {FORMS[form]}")


def _words(profile: Profile) -> Iterator[tuple[str, str, re.Pattern[str]]]:
    yield from _selected("pods", profile.pods)
    yield from _selected("namespaces", profile.namespaces)
    for key, value in profile.labels.items():
        yield "labels", key, KEY
        yield f"labels.{key}", value, VALUE
    for key in profile.annotations:
        yield "annotations", key, KEY
    for field in ("label_from", "annotation_from"):
        for pair in getattr(profile, field).items():
            yield from ((field, key, KEY) for key in pair)
    for key, suffix in profile.label_suffixes.items():
        yield "label_suffixes", key, KEY
        yield f"label_suffixes.{key}", suffix, SUFFIX
    yield "sub_priority", profile.sub_priority, VALUE
    yield "scheduler_name", profile.scheduler_name, OBJECT
    yield "priority_class_name", profile.priority_class_name, OBJECT


def _selected(field: str, selector: Selector) -> Iterator[tuple[str, str, re.Pattern[str]]]:
    for key, value in selector.match_labels.items():
        yield f"{field}.match_labels", key, KEY
        yield f"{field}.match_labels.{key}", value, VALUE
    for i, one in enumerate(selector.match_expressions):
        where = f"{field}.match_expressions[{i}]"
        yield f"{where}.key", one.key, KEY
        yield from ((f"{where}.values", value, VALUE) for value in one.values)
