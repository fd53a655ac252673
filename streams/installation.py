"""What a worker must find on the broker before it starts: the topics, and the installation record.

Called by `streams.worker`. Every failure is one line that says what to do.
"""

from __future__ import annotations

from schemas.errors import SlackwaterError
from schemas.records import Installation
from schemas.topics import BY_NAME, partitions_of
from streams.settings import WorkerSettings
from streams.topics_admin import installation_of, states


class NotInstalled(SlackwaterError):
    """The topics are missing or do not fit."""

    says_what_to_do = True


async def find(settings: WorkerSettings) -> Installation:
    """The installation behind ``settings``.

    Raises NotInstalled when a topic or the record is missing, or partition counts differ.
    """
    there = {state.name: state for state in await states(settings.brokers, settings.prefix)}
    missing = [name for name, state in there.items() if not state.exists]
    create = f"`slackwater topics create --brokers {settings.brokers} --prefix {settings.prefix}`"
    if missing:
        raise NotInstalled(f"topics are missing ({', '.join(missing)}): run {create} first")
    found = await installation_of(settings.brokers, settings.prefix)
    if found is None:
        raise NotInstalled(f"topic fleet holds no installation record: run {create} first")
    for topic in BY_NAME.values():
        name = settings.topic(topic.name)
        wanted = partitions_of(topic, found.partitions)
        if there[name].partitions != wanted:
            raise NotInstalled(
                f"{name} has {there[name].partitions} partitions, the installation says {wanted}: "
                "a partition count is for life; create topics under another prefix and move there"
            )
    return found
