"""r9: a bad policy is refused, naming the file, the key and what is allowed there."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
import yaml
from msgspec import inspect

from schemas import policy
from schemas.errors import BadPolicy

SOURCE = "pilot.yaml"
WHOLE: dict[str, Any] = msgspec.to_builtins(policy.Policy())


def sections_of(kind: type, path: str = "") -> dict[str, type]:
    """Every section by its dotted path, those within sections too."""
    found: dict[str, type] = {}
    for field in inspect.type_info(kind).fields:  # type: ignore[attr-defined]
        if isinstance(field.type, inspect.StructType):
            below = f"{path}{field.name}"
            found[below] = field.type.cls
            found |= sections_of(field.type.cls, f"{below}.")
    return found


SECTIONS = sections_of(policy.Policy)
KEYS = [
    (section, field.name, field.type)
    for section, kind in SECTIONS.items()
    for field in inspect.type_info(kind).fields  # type: ignore[attr-defined]
    if not isinstance(field.type, inspect.StructType)
]
NUMBERS = [(s, name, kind) for s, name, kind in KEYS if isinstance(kind, inspect.IntType)]
IDS = [f"{section}.{name}" for section, name, _ in KEYS]
NUMBER_IDS = [f"{section}.{name}" for section, name, _ in NUMBERS]


def refusal(text: str | bytes) -> str:
    with pytest.raises(BadPolicy) as refused:
        policy.parse(text, SOURCE)
    message = str(refused.value)
    assert message.startswith(f"{SOURCE}: ")
    return message


def with_value(section: str, name: str, value: Any) -> str:
    return nested(section, {name: value})


def nested(section: str, content: dict[str, Any]) -> str:
    for part in reversed(section.split(".")):
        content = {part: content}
    return yaml.safe_dump(content)


def test_the_defaults_written_out_are_the_defaults() -> None:
    assert policy.parse(yaml.safe_dump(WHOLE), SOURCE) == policy.Policy()
    assert policy.parse("name: default\n", SOURCE) == policy.Policy()


@pytest.mark.parametrize(("section", "name", "kind"), NUMBERS, ids=NUMBER_IDS)
def test_every_number_has_a_range_and_is_held_to_it(
    section: str, name: str, kind: inspect.IntType
) -> None:
    low, high = kind.ge, kind.le
    assert low is not None
    assert high is not None
    for value in (low - 1, high + 1, -(10**30), 10**30):
        message = refusal(with_value(section, name, value))
        assert (
            f"{section}.{name} is {value}; allowed: a whole number from {low} to {high}" in message
        )


@pytest.mark.parametrize(("section", "name", "kind"), KEYS, ids=IDS)
@pytest.mark.parametrize("value", ["abc", 1.5, None, [], {}, [1], {"a": 1}, float("nan")])
def test_every_key_is_held_to_its_type(
    section: str, name: str, kind: inspect.Type, value: Any
) -> None:
    if isinstance(kind, inspect.VarTupleType):
        if value == []:
            return
        name = name if value != [1] else f"{name}[0]"
    message = refusal(with_value(section, name, value))
    assert f"{section}.{name}" in message
    assert "allowed: " in message
    assert ("true or false" in message) == isinstance(kind, inspect.BoolType)


@pytest.mark.parametrize(("section", "name", "kind"), KEYS, ids=IDS)
def test_a_key_that_is_named_leaves_the_others_at_their_defaults(
    section: str, name: str, kind: inspect.Type
) -> None:
    value: Any = WHOLE
    for part in (*section.split("."), name):
        value = value[part]
    assert policy.parse(with_value(section, name, value), SOURCE) == policy.Policy()


@pytest.mark.parametrize(("section", "name", "kind"), KEYS, ids=IDS)
def test_numbers_are_no_switches_and_switches_no_numbers(
    section: str, name: str, kind: inspect.Type
) -> None:
    wrong = 1 if isinstance(kind, inspect.BoolType) else True
    assert f"{section}.{name} is {wrong}; allowed: " in refusal(with_value(section, name, wrong))


def test_a_list_is_held_to_its_items() -> None:
    good = {"start_minute": 10_000, "end_minute": 60, "permille": 50}
    (read,) = policy.parse(with_value("margins", "peaks", [good]), SOURCE).margins.peaks
    assert read == policy.Peak(10_000, 60, 50)
    for key, value, says in (
        ("permille", 1001, "margins.peaks[1].permille is 1001; allowed: a whole number from 0"),
        ("start_minute", 10_080, "margins.peaks[1].start_minute is 10080"),
        ("end_minute", 10_000, "margins.peaks[1].end_minute is 10000; allowed: any minute but"),
        ("minute", 1, "margins.peaks[1].minute is no key of the policy"),
    ):
        assert says in refusal(with_value("margins", "peaks", [good, good | {key: value}]))
    assert "end_minute" in refusal(with_value("margins", "peaks", [{"start_minute": 1}]))


@pytest.mark.parametrize("section", SECTIONS)
def test_unknown_keys_are_refused_with_the_known_ones(section: str) -> None:
    message = refusal(nested(section, {"treshold": 1}))
    assert f"{section}.treshold is no key of the policy; allowed: " in message
    for field in msgspec.structs.fields(SECTIONS[section]):
        assert field.name in message
    assert "allowed: name, loop, suppress" in refusal("surpress: {}")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("# only a comment", "empty"),
        ("a: [", "not YAML"),
        ("\t", "not YAML"),
        ("- a", "a mapping with keys"),
        ("text", "a mapping with keys"),
        ("loop: 3", "loop is 3; allowed: a mapping with keys tick_ms"),
        ("loop:", "loop is None"),
        ("name: a\nname: b", "key name is written twice"),
        ("loop:\n  tick_ms: 1000\n  tick_ms: 2000", "key tick_ms is written twice"),
        ("name: ''", "name is ''"),
        ("name: 'a/b'", "name is 'a/b'"),
        ('name: "a\\n"', "name is 'a\\n'"),
        ("1: 2", "1 is no key"),
        ("? [a]\n: b", "not YAML"),
        ("a: 2001-99-99", "not YAML"),
        ("a: !!float ''", "not YAML"),
        ("a: !!bool maybe", "not YAML"),
        ("a: !!timestamp x", "not YAML"),
        ("a: !!python/name:os.system", "not YAML"),
        ("a: &a [*a]", "a is no key"),
        ("[" * 50_000, "not YAML"),
        ("loop: {tick_ms: " + "9" * 5000 + "}", "not YAML"),
        ("# " + "x" * policy.MAX_POLICY_BYTES, "allowed: 262144"),
        (
            "evict_memory: {threshold_percent: 70, lower_percent: 70}",
            "lower_percent is 70; allowed: 0 to threshold_percent - 1 = 69",
        ),
        (
            "evict_cpu: {satisfaction_lower_percent: 50}",
            "satisfaction_upper_percent is 40; allowed: satisfaction_lower_percent = 50 to 99",
        ),
        ("loop: {command_ttl_ms: 2999}", "command_ttl_ms is 2999; allowed: at least three"),
        ("loop: {withdraw_after_ms: 2000}", "silent_after_ms < withdraw_after_ms"),
        ("loop: {forget_after_ms: 100000}", "withdraw_after_ms <= forget_after_ms"),
        ("suppress: {policy: both}", "suppress.policy is 'both'; allowed: cpuset or quota"),
        ("resctrl: {be: {l3_start_percent: 30}}", "resctrl.be.l3_start_percent is 30; allowed: 0"),
        (
            "core_sched: {enabled: true}\ngroup_identity: {be: {enabled: true}}",
            "core_sched.enabled is true; allowed: only without group_identity",
        ),
        (
            "oom: {be: {enabled: true, score_adj: 0}, ls: {enabled: true}}",
            "oom.ls.score_adj is 0; allowed: below that of best effort, 0",
        ),
        (
            "network: {be: {egress_min_percent: 20, egress_max_percent: 10}}",
            "network.be.egress_max_percent is 10; allowed: 0, or at least egress_min_percent = 20",
        ),
        (
            "network: {be: &a {enabled: true, ingress_min_percent: 51}, ls: *a}",
            "network ingress_min_percent of all classes is 102; allowed: 0 to 100 together",
        ),
    ],
    ids=lambda text: repr(text)[:40],
)
def test_what_else_is_refused(text: str, says: str) -> None:
    assert says in refusal(text)


@pytest.mark.parametrize("raw", [b"\xff\xfe\x00", b"\x00", b"name: \xc3", b"\xef\xbb\xbf\x80"])
def test_bytes_that_are_no_text_are_refused(raw: bytes) -> None:
    assert "not YAML" in refusal(raw)


def test_r9_mutations_of_a_good_policy_are_read_or_refused_and_never_crash() -> None:
    rng = random.Random(5)
    text = yaml.safe_dump(WHOLE, sort_keys=False)
    noise = ["-", "!!int ''", "~", "&a *a", "{", "]", "1e9", "0x", "no", "'", "\u2028", ": ", "\n"]
    read = 0
    refusals = []
    for _ in range(800):
        lines = text.splitlines()
        for _ in range(rng.choice((1, 2, 3))):
            at = rng.randrange(len(lines))
            line = lines[at]
            cut = rng.randrange(len(line) + 1)
            match rng.randrange(4):
                case 0:
                    lines[at] = line[:cut] + rng.choice(noise) + line[cut:]
                case 1:
                    lines[at] = line[:cut]
                case 2:
                    lines[at], lines[-1] = lines[-1], line
                case _:
                    lines[at] = f"{line.partition(':')[0]}: {rng.choice([-1, 0, 10**7, 'x', True])}"
        try:
            parsed = policy.parse("\n".join(lines), SOURCE)
        except BadPolicy as error:
            refusals.append(str(error))
        else:
            assert policy.parse(yaml.safe_dump(msgspec.to_builtins(parsed)), SOURCE) == parsed
            read += 1
    assert 0 < read < 800
    assert all(message.startswith(f"{SOURCE}: ") for message in refusals)


def test_a_bad_key_below_a_good_name_is_the_one_that_is_named() -> None:
    text = "name: default\nsuppress:\n  threshold_percent: 650\n"
    assert "suppress.threshold_percent is 650; allowed: a whole number from 0 to 100" in refusal(
        text
    )


def test_the_digest_names_the_content_not_the_writing() -> None:
    base = policy.parse("name: default", SOURCE)
    same = policy.parse("suppress: {threshold_percent: 65}\nname: default  # as before", SOURCE)
    other = policy.parse("suppress: {threshold_percent: 64}", SOURCE)
    assert policy.digest(base) == policy.digest(same) != policy.digest(other)
    assert len(policy.digest(base)) == 16
