"""The admission policy's file: read at the start and when it changes; a bad one changes nothing.

Kept by `service`. A mounted ConfigMap is swapped by a link, so its content is looked at, no time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from scheduler_bridge.admission.profile import check
from scheduler_bridge.admission.rules import Rules, parse
from schemas.errors import BadPolicy

log = logging.getLogger("slackwater.admission")
LOOK_S = 5.0


def read_rules(path: Path) -> Rules:
    """Raises BadPolicy naming file, key and allowed range, OSError for an unreadable file."""
    return _parsed(path.read_bytes(), path)


class RulesFile:
    """``rules`` are the last good ones; `look` and `watch` tell of new ones."""

    def __init__(self, path: Path) -> None:
        """Raises BadPolicy and OSError: no start without good rules."""
        self._path = path
        self._raw = path.read_bytes()
        self.rules = _parsed(self._raw, path)
        log.info("%s: rules %s", path, self.rules.digest())

    def look(self) -> bool | None:
        """True: new rules are in force; False: they are bad, the old ones stay; None: no change."""
        try:
            raw = self._path.read_bytes()
            if raw == self._raw:
                return None
            self._raw = raw
            self.rules = _parsed(raw, self._path)
        except (BadPolicy, OSError) as error:
            log.warning("the rules stay as they were (%s): %s", self.rules.digest(), error)
            return False
        log.info("%s: rules %s", self._path, self.rules.digest())
        return True

    async def watch(self, tell: Callable[[bool], None]) -> None:
        """Look now and then, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            changed = await asyncio.to_thread(self.look)
            if changed is not None:
                tell(changed)


def _parsed(raw: bytes, path: Path) -> Rules:
    rules = parse(raw, str(path))
    check(rules.profiles, str(path))
    return rules
