"""The development broker: starts, stops, survives, and says in one line why it cannot."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from streams.dev_broker import BrokerError, DevBroker, config, jars, probe

ENDS_WITHIN_S = 30.0
MAIN = "import sys; from streams.cli import run; sys.exit(run(sys.argv[1:]))"


def eventually(true: Callable[[], bool], what: str, within_s: float = ENDS_WITHIN_S) -> None:
    """Poll a condition until it holds; fail when it does not in time."""
    deadline = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline, f"not within {within_s} s: {what}"
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"  # whoever adopted it may not reap at once


def one_line(error: pytest.ExceptionInfo[BrokerError]) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


async def create(bootstrap: str, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, 1, 1)])
    finally:
        await admin.close()


async def produce(bootstrap: str, topic: str, value: bytes) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all") as producer:
        await producer.send_and_wait(topic, value)


async def first(bootstrap: str, topic: str) -> bytes:
    """The first record of a topic."""
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        record = await asyncio.wait_for(consumer.getone(), ENDS_WITHIN_S)
    return bytes(record.value)


@pytest.fixture(scope="module")
def own(broker: DevBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevBroker]:
    """A broker that these tests may harm. (`broker` proves that this machine can run one.)"""
    with DevBroker(data=tmp_path_factory.mktemp("own") / "data") as mine:
        yield mine


async def test_carries_records(broker: DevBroker, prefix: str) -> None:
    await create(broker.bootstrap, f"{prefix}a")
    await produce(broker.bootstrap, f"{prefix}a", b"hello")
    assert await first(broker.bootstrap, f"{prefix}a") == b"hello"


async def test_makes_no_topic_by_itself(broker: DevBroker, prefix: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    try:
        await admin.describe_topics([f"{prefix}unknown"])  # a metadata request may create, if on
        assert f"{prefix}unknown" not in await admin.list_topics()
    finally:
        await admin.close()


async def test_restart_and_crash_keep_port_and_data(own: DevBroker) -> None:
    before, pid = own.bootstrap, own.pid
    await create(own.bootstrap, "kept")
    await produce(own.bootstrap, "kept", b"one")
    await asyncio.to_thread(own.restart)
    assert (own.bootstrap, is_gone(pid)) == (before, True)
    assert await first(own.bootstrap, "kept") == b"one"

    pid = own.pid
    await asyncio.to_thread(own.kill)
    assert is_gone(pid)
    assert not own.alive
    await asyncio.to_thread(own.start)
    assert own.bootstrap == before
    assert await first(own.bootstrap, "kept") == b"one"


def test_pause_silences_and_resume_heals(own: DevBroker) -> None:
    own.pause()
    try:
        with socket.create_connection((own.listen, own.port), 2) as connection:
            # ApiVersions v0, correlation id 1, no client id.
            connection.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\x01\xff\xff")
            connection.settimeout(0.5)
            with pytest.raises(TimeoutError):
                connection.recv(4)
            own.resume()
            connection.settimeout(ENDS_WITHIN_S)
            assert len(connection.recv(4)) == 4
    finally:
        own.resume()
    assert probe.answers(own.bootstrap)


def test_works_inside_a_running_loop(own: DevBroker) -> None:
    async def asked() -> bool:
        return probe.answers(own.bootstrap)

    assert asyncio.run(asked())


def test_data_in_use_is_refused(own: DevBroker) -> None:
    second = DevBroker(data=own.data, log=own.data / "second.log")
    with pytest.raises(BrokerError, match="another broker uses") as error:
        second.start()
    assert str(own.data) in one_line(error)
    assert not second.alive
    assert not (own.data / "second.log").exists(), "refused before Java is started"
    assert probe.answers(own.bootstrap)


def test_kept_data_starts_again_after_its_parent_was_killed(
    broker: DevBroker, tmp_path: Path
) -> None:
    process, java = start_command(tmp_path, "--data", str(tmp_path / "data"))
    assert broker.alive
    process.kill()
    process.wait()
    with DevBroker(data=tmp_path / "data") as mine:
        assert is_gone(java)
        assert probe.answers(mine.bootstrap)
    process.communicate()


def test_port_in_use_is_refused(own: DevBroker, tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match=f"port {own.port} .* in use: .*--port 0") as error:
        DevBroker(data=tmp_path / "data", port=own.port).start()
    one_line(error)


def test_half_dead_data_is_refused(broker: DevBroker, tmp_path: Path) -> None:
    (tmp_path / "kafka" / "topic-0").mkdir(parents=True)
    with pytest.raises(BrokerError, match=r"no meta\.properties.*: remove it, or choose") as error:
        DevBroker(data=tmp_path).start()
    one_line(error)
    assert broker.alive


def test_damaged_data_is_named(broker: DevBroker, tmp_path: Path) -> None:
    (tmp_path / "kafka").mkdir()
    (tmp_path / "kafka" / "meta.properties").write_text("version=1\nnode.id=7\ncluster.id=x\n")
    with pytest.raises(BrokerError, match="Kafka ended while starting") as error:
        DevBroker(data=tmp_path).start()
    assert f"remove {tmp_path}" in one_line(error)
    assert broker.alive


def test_bad_heap_is_named(broker: DevBroker, tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match="--heap much: give a size such as 512m") as error:
        DevBroker(data=tmp_path, heap="much").start()
    one_line(error)
    assert broker.alive


def test_temporary_data_goes_with_the_broker(broker: DevBroker) -> None:
    with DevBroker() as mine:
        folder, pid = mine.data, mine.pid
        assert folder.is_dir()
    assert (folder.exists(), is_gone(pid), broker.alive) == (False, True, True)


def fake(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_missing_and_old_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BrokerError, match=r"no 'java' on PATH: install Java 17 or newer \(Debian"):
        jars.find_java()
    fake(tmp_path, "java", "echo 'openjdk version \"11.0.2\"' >&2")
    with pytest.raises(BrokerError, match="is Java 11: install Java 17"):
        jars.find_java()
    fake(tmp_path, "java", "echo 'java version \"1.8.0_292\"' >&2")
    with pytest.raises(BrokerError, match="is Java 8: install Java 17"):
        jars.find_java()
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(BrokerError, match="JAVA_HOME=/nowhere holds no bin/java"):
        jars.find_java()


def test_missing_maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BrokerError, match=r"no 'mvn' on PATH .*apt-get install maven"):
        jars.ensure_jars()


COPY = (
    'for a in "$@"; do case "$a" in -DoutputDirectory=*) d=${a#*=};; esac; done; mkdir -p "$d"; '
    f"sleep 0.2; : > $d/kafka_2.13-{jars.kafka_version()}.jar"
)


def test_two_first_starts_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    fake(tmp_path / "bin", "mvn", COPY)
    got: list[Path] = []
    threads = [threading.Thread(target=lambda: got.append(jars.ensure_jars())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [jars.cache_folder()] * 4
    assert [path.name for path in jars.cache_folder().parent.iterdir()] == [got[0].name]
    assert [path.suffix for path in got[0].iterdir()] == [".jar"]


@pytest.mark.parametrize(
    ("script", "why"),
    [("echo '[ERROR] no such host'; exit 1", "no such host"), ("exit 0", "exit code 0")],
)
def test_failed_fetch_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, why: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    fake(tmp_path / "bin", "mvn", script)
    with pytest.raises(BrokerError, match=f"could not fetch Kafka .*{why}"):
        jars.ensure_jars()
    assert list(jars.cache_folder().parent.iterdir()) == []


def start_command(tmp_path: Path, *options: str) -> tuple[subprocess.Popen[str], int]:
    """`slackwater dev-broker` as a process of its own, ready; with the pid of its Java."""
    ready = tmp_path / "ready.json"
    command = [sys.executable, "-c", MAIN, "dev-broker", "--port", "0", "--ready-file", str(ready)]
    process = subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    eventually(lambda: ready.exists() or process.poll() is not None, "a ready file", 120)
    assert process.poll() is None, process.communicate()[1]
    told = json.loads(ready.read_text())
    assert probe.answers(told["bootstrap"])
    return process, int(told["pid"])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_command_stops_cleanly(
    broker: DevBroker, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    process, java = start_command(tmp_path, "--data", str(tmp_path / "data"), "--json")
    assert broker.alive
    process.send_signal(number)
    out, err = process.communicate(timeout=ENDS_WITHIN_S)
    assert (process.returncode, err, is_gone(java)) == (code, "", True)
    assert re.fullmatch(r'\{"bootstrap": "127\.0\.0\.1:\d+", "pid": \d+\}\n', out)
    assert not (tmp_path / "ready.json").exists()
    assert (tmp_path / "data" / "broker.log").stat().st_size > 0


def test_java_dies_with_a_killed_parent(broker: DevBroker, tmp_path: Path) -> None:
    process, java = start_command(tmp_path, "--data", str(tmp_path / "data"))
    assert broker.alive
    process.kill()
    process.communicate()
    eventually(lambda: is_gone(java), "the end of Java", 15)


def test_command_tells_of_a_dead_broker(broker: DevBroker, tmp_path: Path) -> None:
    process, java = start_command(tmp_path, "--data", str(tmp_path / "data"))
    assert broker.alive
    os.kill(java, signal.SIGKILL)
    _, err = process.communicate(timeout=ENDS_WITHIN_S)
    assert process.returncode == 1
    assert re.fullmatch(r"slackwater: Kafka ended by itself .*see .*broker\.log\n", err)


def test_configuration_names_one_voter_on_loopback() -> None:
    text = config.server_properties(Path("/data"), "10.0.0.1", 9092, 9093)
    assert "advertised.listeners=PLAINTEXT://10.0.0.1:9092\n" in text
    assert "controller.quorum.voters=1@127.0.0.1:9093\n" in text
    assert "auto.create.topics.enable=false\n" in text
