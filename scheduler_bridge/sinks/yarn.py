"""Tells YARN's ResourceManager what each NodeManager may use, by its REST API; and asks it.

`scheduler_bridge.ledger.keeper` decides what is told. Needed: Hadoop 3.3 (`POST .../resource`,
YARN-996), the capacity scheduler with the DominantResourceCalculator (the default one ignores
cores), and a user who may administer YARN (``yarn.admin.acl``). An update is kept by the
ResourceManager only until it or the NodeManager starts again; then the NodeManager's own setting
holds, until the next look corrects it: let that setting be as small as YARN takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import orjson

from scheduler_bridge.ledger import yarn
from scheduler_bridge.reconcile import Amount

TIMEOUT_S = 5.0
CLUSTER = "/ws/v1/cluster"


class YarnRefused(OSError):
    """The ResourceManager answered, and it was no; or something else answered."""


class ResourceManager:
    """Of several addresses (an active and its standbys) the one that answered last is asked first.

    ``user`` goes along as ``user.name``: who we are to a cluster without Kerberos.
    """

    def __init__(self, urls: Sequence[str], user: str, timeout_s: float = TIMEOUT_S) -> None:
        check_urls(urls)
        self._urls = [url.rstrip("/") for url in urls]
        self._user = user
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._session: aiohttp.ClientSession | None = None

    async def look(self) -> yarn.Answer:
        """Everything that the ledger needs to know. Raises OSError: none of them answers."""
        errors = []
        for url in list(self._urls):
            try:
                found = await self._look(url)
            except (OSError, ValueError) as error:
                errors.append(f"{url}: {error}")
                continue
            self._urls.remove(url)
            self._urls.insert(0, url)
            return found
        raise YarnRefused("; ".join(errors))

    async def tell(self, node_id: str, amount: Amount) -> None:
        """A NodeManager may use so much from now on. Raises OSError: it was not taken."""
        path = f"{CLUSTER}/nodes/{node_id}/resource"
        await self._ask("POST", self._urls[0] + path, yarn.update_of(amount))

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _look(self, url: str) -> yarn.Answer:
        """``startedOn`` before and after: an answer put together of two runs is none."""
        before = yarn.read_started_ms(await self._ask("GET", f"{url}{CLUSTER}/info"))
        nodes = yarn.read_nodes(await self._ask("GET", f"{url}{CLUSTER}/nodes"))
        waiting = yarn.read_waiting(await self._ask("GET", f"{url}{CLUSTER}/metrics"))
        after = yarn.read_started_ms(await self._ask("GET", f"{url}{CLUSTER}/info"))
        if before != after:
            raise YarnRefused("it started again between two questions")
        return yarn.Answer(after, nodes, waiting)

    async def _ask(self, verb: str, url: str, body: Any = None) -> Any:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=self._timeout)
        raw = None if body is None else orjson.dumps(body)
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        try:
            async with self._session.request(
                verb, url, params={"user.name": self._user}, data=raw, headers=headers,
                allow_redirects=False,
            ) as answer:  # fmt: skip
                text = await answer.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise YarnRefused(f"no answer: {error!r:.200}") from error
        if answer.status != 200:
            raise YarnRefused(f"status {answer.status}: {text[:200]!r}")
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            raise YarnRefused(f"no JSON: {text[:200]!r}") from None


def check_urls(urls: Sequence[str]) -> None:
    """Raise ValueError where one is no address of a ResourceManager's web services."""
    if not urls:
        raise ValueError("no address of a ResourceManager; want http://host:8088[,...]")
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            raise ValueError(f"ResourceManager {url!r:.80}: want http://host:8088[,...]")
