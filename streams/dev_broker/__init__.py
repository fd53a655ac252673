"""A real Apache Kafka broker on this machine, for development, the demo and the tests.

Used by `slackwater dev-broker`, by the demo and by the tests' `broker` fixture. One process, KRaft,
nothing to install but Java and Maven.
"""

from streams.dev_broker.broker import DevBroker
from streams.dev_broker.errors import BrokerError

__all__ = ["BrokerError", "DevBroker"]
