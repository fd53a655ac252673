"""Java, Maven and Kafka's jars: found, checked, fetched once. Called by `DevBroker.start`.

The jars of `pom.xml` go to a cache folder named after Kafka's version and the pom's digest. It is
filled in a folder beside it and renamed into place, so that two starts at once are safe and a
folder of that name is always whole.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from streams.dev_broker.errors import BrokerError

POM = Path(__file__).with_name("pom.xml")
JAVA_OLDEST = 17  # what Kafka 4's broker needs
FETCH_TIMEOUT_S = 600


def kafka_version() -> str:
    """The Kafka version that `pom.xml` names."""
    found = re.search(r"<artifactId>kafka_2\.13</artifactId>\s*<version>([^<]+)<", POM.read_text())
    if found is None:
        raise BrokerError(f"{POM} names no version of kafka_2.13")
    return found.group(1)


def cache_folder() -> Path:
    """Where the jars of this pom belong, whether or not they are there."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    digest = hashlib.sha256(POM.read_bytes()).hexdigest()[:8]
    return Path(base) / "slackwater" / f"kafka-{kafka_version()}-{digest}"


def find_java() -> str:
    """The path of a Java that is new enough. Raises BrokerError."""
    home = os.environ.get("JAVA_HOME")
    path = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    need = f"install Java {JAVA_OLDEST} or newer (Debian: apt-get install default-jre-headless)"
    if path is None:
        where = f"JAVA_HOME={home} holds no bin/java" if home else "there is no 'java' on PATH"
        raise BrokerError(f"{where}: {need}")
    answer = subprocess.run([path, "-version"], capture_output=True, text=True, check=False)
    said = answer.stderr + answer.stdout
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if found is None:
        raise BrokerError(f"{path} -version does not tell its version: {need}")
    if int(found.group(1)) < JAVA_OLDEST:
        raise BrokerError(f"{path} is Java {found.group(1)}: {need}")
    return path


def ensure_jars() -> Path:
    """The folder with Kafka's jars, fetched by Maven if it is not there yet. Raises BrokerError."""
    folder = cache_folder()
    if folder.is_dir():
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        raise BrokerError(
            "there is no 'mvn' on PATH to fetch Kafka's jars: install Maven "
            f"(Debian: apt-get install maven), or lay the jars into {folder}"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        _fetch(maven, work)
        (work / "jars").rename(folder)
    except OSError as error:
        if not folder.is_dir():  # else another start was faster, and its folder is as good
            raise BrokerError(f"cannot keep Kafka's jars in {folder}: {error}") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return folder


def _fetch(maven: str, work: Path) -> None:
    """Let Maven copy the jars of our pom into `work`/jars."""
    shutil.copy(POM, work / "pom.xml")
    command = [maven, "-q", "-B", "-f", str(work / "pom.xml"), "dependency:copy-dependencies"]
    command += ["-Dstyle.color=never", f"-DoutputDirectory={work / 'jars'}"]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=FETCH_TIMEOUT_S
        )
    except subprocess.TimeoutExpired as error:
        raise BrokerError(
            f"Maven did not fetch Kafka's jars within {FETCH_TIMEOUT_S} s: check the network"
        ) from error
    whole = (work / "jars" / f"kafka_2.13-{kafka_version()}.jar").is_file()
    if answer.returncode != 0 or not whole:
        lines = [line for line in answer.stdout.splitlines() if "ERROR" in line]
        why = lines[0] if lines else (answer.stderr.strip() or f"exit code {answer.returncode}")
        raise BrokerError(f"Maven could not fetch Kafka {kafka_version()}: {why}")
