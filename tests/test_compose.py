"""docker-compose.yml and deploy/: valid, and in step with the real commands, ports and files."""

from __future__ import annotations

import json
import re
import stat
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer
import yaml
from typer.testing import CliRunner

from schemas import policy
from streams.cli import COMMANDS, found, load
from streams.dev_broker.jars import kafka_version
from tests.command_line import option_names, parse

SCHEMA = "check_jsonschema/builtin_schemas/vendor/compose-spec.json"
ROOT = Path(__file__).parents[1]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: one for name, one in SERVICES.items() if one["image"].startswith("slackwater:")}
PROMETHEUS: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "prometheus.yml").read_text())
CONTAINERFILE = (ROOT / "deploy" / "Containerfile").read_text()


def told_port(arguments: list[str]) -> str:
    """The metrics port that a command line names."""
    return arguments[arguments.index("--metrics-port") + 1]


def scraped() -> list[tuple[str, str]]:
    """(service, port) of everything that Prometheus is told to scrape."""
    pairs = []
    for job in PROMETHEUS["scrape_configs"]:
        for static in job.get("static_configs", []):
            pairs += [tuple(target.split(":")) for target in static["targets"]]
        for dns in job.get("dns_sd_configs", []):
            pairs += [(name, str(dns["port"])) for name in dns["names"]]
    return pairs


def test_follows_the_compose_specification() -> None:
    # Only its data is wanted: the package itself asks for a newer click than Faust allows.
    file = distribution("check-jsonschema").locate_file(SCHEMA)
    schema = json.loads(Path(str(file)).read_text())
    validator = jsonschema.validators.validator_for(schema)(schema)
    assert [error.message for error in validator.iter_errors(COMPOSE)] == []
    broken = {**COMPOSE, "services": {**SERVICES, "worker": {"imagine": 1}}}
    assert not validator.is_valid(broken)


def test_has_the_whole_loop() -> None:
    assert SERVICES.keys() == {
        "kafka", "topics", "keys", "policy", "worker", "fleet", "bridge", "simulate", "prometheus",
        "recorder",
    }  # fmt: skip
    assert SERVICES["worker"]["deploy"]["replicas"] == 2
    assert SERVICES["kafka"]["healthcheck"]["test"][0] == "CMD"
    assert SERVICES["bridge"]["command"][:4] == ["bridge", "run", "--sink", "dry-run"]
    assert {name for name, one in SERVICES.items() if "profiles" in one} == {"recorder"}
    assert SERVICES["simulate"]["command"][:3] == ["simulate", "--nodes", "50"]


def test_keys_are_made_once_and_everybody_who_can_uses_them(tmp_path: Path) -> None:
    maker = SERVICES["keys"]
    assert maker["volumes"] == ["keys:/etc/slackwater/keys"]
    assert parse(maker["command"])["folder"] == Path("/etc/slackwater/keys")
    takes = {name for name in OURS if "--keys" in option_names(SERVICES[name]["command"])}
    assert takes == {"keys", "worker", "simulate"}
    for name in takes - {"keys"}:
        service = SERVICES[name]
        assert str(parse(service["command"])["keys"]) == "/etc/slackwater/keys", name
        assert service["volumes"] == ["keys:/etc/slackwater/keys:ro"], name
        waits = service["depends_on"]["keys"]["condition"]
        assert waits == "service_completed_successfully", name
        assert "--accept-unsigned" not in service["command"], name
    assert "-o slackwater -m 700 /etc/slackwater/keys" in CONTAINERFILE

    # What that command does, on this machine: a second start of the stack changes nothing.
    command: list[str] = maker["command"]
    app, rest = load(found()[command[0]]), [*command[1:], "--keys", str(tmp_path / "keys")]
    first, second = (CliRunner().invoke(app, rest).stdout for _ in range(2))
    assert len(second.splitlines()) == 3
    assert first.startswith(second)
    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o700


def test_its_policy_may_run_and_lets_the_loop_turn() -> None:
    command, (mount,) = SERVICES["policy"]["command"], SERVICES["policy"]["volumes"]
    here, there, mode = mount.split(":")
    assert (command[:3], mode) == (["policy", "put", there], "ro")
    assert {"--force", "--author", "--note"} <= set(command)
    read = policy.parse((ROOT / here).read_text(), here)
    assert (read.name, read.rollout.stage) == ("default", "expand")


def test_services_wait_for_services_that_exist() -> None:
    for name, service in SERVICES.items():
        assert set(service.get("depends_on", [])) <= SERVICES.keys(), name
    for name in OURS.keys() - {"topics", "keys"}:
        waits = SERVICES[name]["depends_on"]["topics"]["condition"]
        assert waits == "service_completed_successfully", name


@pytest.mark.parametrize("name", OURS)
def test_command_is_one_the_real_command_line_takes(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in OURS[name]["environment"].items():
        monkeypatch.setenv(variable, value)
    parameters = parse(OURS[name]["command"])
    if name != "keys":  # which asks nobody
        assert parameters["brokers"] in ("kafka:9092", ["kafka:9092"])
        assert parameters["prefix"] == "slackwater."


def test_the_check_of_commands_finds_what_is_wrong() -> None:
    with pytest.raises(typer.TyperException, match="No such option"):
        parse(["dev-broker", "--no-such-option"])
    with pytest.raises(typer.TyperException, match="valid integer"):
        parse(["dev-broker", "--port", "many"])
    with pytest.raises(typer.TyperException, match="no sub-command"):
        parse(["bridge", "no-such-command"])
    assert parse(["dev-broker", "--port", "0"])["port"] == 0


def test_our_services_have_few_rights() -> None:
    for name, service in OURS.items():
        assert (service["cap_drop"], service["read_only"]) == (["ALL"], True), name
        assert "no-new-privileges:true" in service["security_opt"], name
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_kafka_is_the_one_that_the_tests_run_against() -> None:
    assert SERVICES["kafka"]["image"] == f"apache/kafka:{kafka_version()}"


def test_prometheus_scrapes_what_is_there() -> None:
    pairs = scraped()
    assert {"worker", "bridge", "simulate"} <= {service for service, _ in pairs}
    for service, port in pairs:
        assert SERVICES[service]["expose"] == [port], service
        assert told_port(SERVICES[service]["command"]) == port, service
    assert "worker" in {
        name
        for job in PROMETHEUS["scrape_configs"]
        for dns in job.get("dns_sd_configs", [])
        for name in dns["names"]
    }, "a static target would reach one replica only"


def test_mounted_and_built_files_exist() -> None:
    build = COMPOSE["x-slackwater"]["build"]
    assert (ROOT / build["context"] / build["dockerfile"]).is_file()
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert (ROOT / source).exists() if "/" in source else source in COMPOSE["volumes"]


def test_containerfile_copies_what_is_there_and_all_of_it() -> None:
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", CONTAINERFILE, re.MULTILINE)
    sources = {source for line in copies for source in line.split()}
    assert {name for name in sources if not (ROOT / name).exists()} == set()
    packages = {"schemas", "agents", "streams", "node_agent", "scheduler_bridge"}
    assert packages | {"pyproject.toml", "constraints.txt", "README.md", "LICENSE"} == sources
    let_in = (ROOT / ".dockerignore").read_text().splitlines()
    assert {f"!{source}" for source in sources} <= set(let_in)


def test_image_does_not_run_as_root() -> None:
    last_stage = CONTAINERFILE.rpartition("\nFROM ")[2]
    users = re.findall(r"^USER (\S+)$", last_stage, re.MULTILINE)
    assert users == ["10001"]
    assert 'ENTRYPOINT ["slackwater"]' in last_stage


def test_image_has_what_every_command_needs() -> None:
    (named,) = re.findall(r'"\.\[(\S+)\]"', CONTAINERFILE)
    needed = {about.extra for name, about in COMMANDS.items() if name not in ("demo", "simulate")}
    assert needed - {""} <= set(named.split(","))
    assert "kubernetes" in named.split(",")
