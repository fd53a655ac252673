"""Names that people type are refused before anything starts, with what is allowed."""

from __future__ import annotations

import pytest

from schemas.names import check_brokers, check_node_name


@pytest.mark.parametrize("name", ["n", "node-1.example.org", "_x", "10.0.0.1:8041", "a" * 253])
def test_good_node_names_pass(name: str) -> None:
    assert check_node_name(name) == name


@pytest.mark.parametrize("name", ["", "../x", "a b", "~lease", "-a", "a" * 254, "nöde", "a\n"])
def test_bad_node_names_are_refused_with_what_is_allowed(name: str) -> None:
    with pytest.raises(ValueError, match="want 1 to 253"):
        check_node_name(name)


@pytest.mark.parametrize("brokers", ["h:1", "a:9092,b:9093", "a:9092, b:65535", "[::1]:9092"])
def test_good_broker_lists_pass(brokers: str) -> None:
    assert check_brokers(brokers) == brokers


@pytest.mark.parametrize("brokers", ["", "h", "h:", ":1", "a:b:c", "h:0", "h:65536", "h:1,", "h:x"])
def test_bad_broker_lists_are_refused_with_what_is_allowed(brokers: str) -> None:
    with pytest.raises(ValueError, match="want host:port"):
        check_brokers(brokers)
