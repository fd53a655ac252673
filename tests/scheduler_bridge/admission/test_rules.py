"""The admission policy: refused by key and range; the last good one stays; the command line."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from typer.testing import CliRunner

from scheduler_bridge.admission import certificates
from scheduler_bridge.admission.cli import app
from scheduler_bridge.admission.rules import Rules, parse
from scheduler_bridge.admission.rules_file import RulesFile, read_rules
from schemas.errors import BadPolicy

GOOD = "profiles: [{name: a, pods: {match_labels: {app: x}}, qos: BE}]\n"
LABELS = "profiles: [{{name: a, pods: {{match_labels: {{app: x}}}}, labels: {{'{}': '{}'}}}}]"
EXISTS_VALUES = """
profiles: [{name: a, pods: {match_expressions: [{key: k, operator: Exists, values: [b]}]}}]
"""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("profile: []", "profile is no key of the policy; allowed: profiles, quotas"),
        ("profiles: [{name: a, lables: {}}]", r"profiles\[0\].lables is no key"),
        ("profiles: [{pods: {}}]", r"profiles\[0\].name is missing"),
        ("profiles: [{name: a}]", r"profiles\[0\] selects nothing; allowed: at least one of"),
        ("profiles: [{name: a, pods: {match_labels: {a: b}}, percent: 101}]",
         r"percent is 101; allowed: a whole number from 0 to 100"),
        ("profiles: [{name: a, pods: {match_labels: {a: b}}, qos: XX}]", "allowed: BE or LS"),
        ("profiles: [{name: a, pods: {match_expressions: [{key: a, operator: In}]}}]",
         r"match_expressions\[0\].values is \[\]; allowed with In: at least one"),
        (EXISTS_VALUES, "allowed with Exists: none"),
        (GOOD.strip()[:-1] + ", {name: a, pods: {match_labels: {b: c}}}]", "name is a again"),
        ("quotas: [{name: a, max: {cpu: 3}}]", r"quotas\[0\].max.cpu is no key"),
        ("quotas: [{name: a, min: {cpu_milli: 3}, max: {cpu_milli: 2}}]",
         r"quotas\[0\].min.cpu_milli is 3; allowed: at most its maximum, 2"),
        ("quotas: [{name: a, parent: b}]", r"quotas\[0\].parent leads to b, which is no quota"),
        ("quotas: [{name: a, parent: b}, {name: b, parent: a}]", "round in a circle"),
        ("quotas: [{name: a}, {name: b, parent: a, max: {cpu_milli: 1}}]",
         r"quotas\[1\] names cpu_milli, its parent a has no maximum of it"),
        ("quotas: [{name: root}]", "none of free, root"),
        ("quotas: [{name: a}, {name: a}]", "two of one name"),
        ("quotas: [{name: a, namespaces: [x]}, {name: b, namespaces: [x]}]", "x is a's already"),
        ("recall: {after_s: -1}", "recall.after_s is -1; allowed: a whole number from 0 to 86400"),
        ("recoverable: [mid]", r"recoverable\[0\]"),
        ("[]", "the document is"),
        ("# nothing yet", "empty; write at least `{}`"),
        (LABELS.format("bad key", "v"), r"profiles\[0\].labels is 'bad key'; allowed: a key as"),
        (LABELS.format("example.com/k", "v v"), r"labels.example.com/k is 'v v'; allowed: at most"),
        (LABELS.format("UPPER.com/k", "v"), "UPPER.com/k"),
        ("profiles: [{name: a, pods: {match_labels: {'\u00f6': x}}}]", "pods.match_labels is"),
        ("profiles: [{name: a, pods: {match_expressions: [{key: '!', operator: Exists}]}}]",
         r"pods.match_expressions\[0\].key is '!'"),
        (GOOD.strip()[:-2] + ", annotations: {'a b': c}}]", "annotations is 'a b'"),
        (GOOD.strip()[:-2] + ", label_from: {a: 'b b'}}]", "label_from is 'b b'"),
        (GOOD.strip()[:-2] + ", label_suffixes: {a: '_'}}]", "label_suffixes.a is '_'"),
        (GOOD.strip()[:-2] + ", priority_class_name: Koord_Batch}]", "priority_class_name is"),
        ("a: b: c", "not YAML"),
    ],
)  # fmt: skip
def test_bad_rules_are_refused_by_key_and_range(text: str, why: str) -> None:
    with pytest.raises(BadPolicy, match=why) as error:
        parse(text, "rules.yaml")
    assert str(error.value).startswith("rules.yaml: ")


def test_r9_the_last_good_rules_stay(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(GOOD)
    file = RulesFile(path)
    first = file.rules
    assert file.look() is None
    path.write_text("profiles: 3\n")
    assert file.look() is False
    assert file.look() is None, "the same bad one is told of once"
    assert file.rules is first
    path.unlink()
    assert file.look() is False
    path.write_text("unquoted: refuse\n")
    assert file.look() is True
    assert file.rules == Rules(unquoted="refuse")
    assert file.rules.digest() != first.digest()
    path.write_text("profiles: [{name: a, pods: {match_labels: {a: b}}, labels: {a: c}}]")
    with pytest.raises(BadPolicy, match="looks at label a"):
        read_rules(path)


def test_the_command_line_refuses_before_anything_starts(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("profiles: 3\n")
    run = CliRunner().invoke
    answer = run(app, ["check", str(rules)])
    assert answer.exit_code == 1
    assert "profiles is 3; allowed: a list of at most 256 items" in answer.output
    rules.write_text(GOOD)
    assert "1 profiles, 0 quotas" in run(app, ["check", str(rules)]).output
    none = str(tmp_path / "none")
    files = ["--rules", str(rules), "--tls-certificate", none, "--tls-key", none]
    answer = run(app, ["run", *files, "--port", "70000"])
    assert (answer.exit_code, "port is 70000; allowed: 0 to 65535" in answer.output) == (2, True)
    answer = run(app, ["run", *files, "--kubeconfig", none])
    assert (answer.exit_code, none in answer.output) == (2, True)
    answer = run(app, ["run", *files, "--cpu-name", "cpu"])
    assert (answer.exit_code, "want one with a domain" in answer.output) == (2, True)


def test_certificates_of_our_own_are_good_for_the_service_and_nothing_else(tmp_path: Path) -> None:
    run = CliRunner().invoke
    folder = tmp_path / "made"
    answer = run(app, ["certificates", str(folder), "--namespace", "ops", "--days", "30"])
    assert answer.exit_code == 0, answer.output
    assert (folder / "tls.key").stat().st_mode & 0o077 == 0
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    leaf = x509.load_pem_x509_certificate((folder / "tls.crt").read_bytes())
    authority = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    leaf.verify_directly_issued_by(authority)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [
        "slackwater-admission.ops.svc", "slackwater-admission.ops.svc.cluster.local",
    ]  # fmt: skip
    assert (leaf.not_valid_after_utc - leaf.not_valid_before_utc).days == 30
    answer = run(app, ["certificates", str(folder)])
    assert (answer.exit_code, "give another folder" in answer.output) == (2, True)
    with pytest.raises(ValueError, match="allowed: 1 to 3650"):
        certificates.make(tmp_path / "other", ["a"], 0)


def test_the_configuration_leaves_the_system_and_unmarked_workloads_alone(tmp_path: Path) -> None:
    authority = tmp_path / "ca.crt"
    authority.write_text("pem")
    run = CliRunner().invoke
    answer = run(app, ["configuration", "--ca", str(authority), "--namespace", "ops"])
    both = list(yaml.safe_load_all(answer.output))
    assert [one["kind"] for one in both] == [
        "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
    ]  # fmt: skip
    for entry in (entry for one in both for entry in one["webhooks"]):
        outside = entry["namespaceSelector"]["matchExpressions"][0]
        assert outside["operator"] == "NotIn"
        assert {"kube-system", "ops"} <= set(outside["values"])
        fails = entry["failurePolicy"] == "Fail"
        assert fails == entry["name"].startswith("borrowers.")
        assert entry["timeoutSeconds"] == (5 if fails else 1)
        assert entry["sideEffects"] == "NoneOnDryRun"
        assert entry["clientConfig"]["caBundle"] == "cGVt"
        assert entry["clientConfig"]["service"]["namespace"] == "ops"
