"""The two files a broker reads: server.properties and log4j2.properties. Pure text, no I/O."""

from __future__ import annotations

from pathlib import Path

NODE_ID = 1

# Small and quick: one node, few coordinator partitions, small segments so that retention and
# compaction can be watched, no wait before a group's first assignment. A killed broker may come
# back only when its last session has lapsed (default 9 s), so sessions are short.
_FIXED = """\
process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
group.initial.rebalance.delay.ms=0
log.segment.bytes=16777216
log.index.size.max.bytes=1048576
log.retention.check.interval.ms=30000
log.segment.delete.delay.ms=5000
log.cleaner.threads=1
log.cleaner.dedupe.buffer.size=16777216
num.network.threads=2
num.io.threads=4
background.threads=2
"""

LOG4J = """\
rootLogger.level=INFO
rootLogger.appenderRef.console.ref=console
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d{yyyy-MM-dd HH:mm:ss.SSS} %-5p %c{1}: %m%n
logger.data.name=org.apache.kafka.common.utils.AppInfoParser
logger.data.level=WARN
"""


def server_properties(log_dir: Path, listen: str, port: int, controller_port: int) -> str:
    """The broker's configuration. The controller is for the broker itself: loopback only."""
    # The voter stands here and not in the data, so that a kept folder may start on another port.
    own = {
        "log.dirs": str(log_dir),
        "listeners": f"PLAINTEXT://{listen}:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{listen}:{port}",
        "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{controller_port}",
    }
    return _FIXED + "".join(f"{key}={value}\n" for key, value in own.items())
