"""Users are who their certificates say, and keys are nobody else's to read."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.kube.certificates import Authority, Pair


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "certificates")


def read(pair: Pair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate.read_bytes())


def test_name_and_group_of_a_user(authority: Authority) -> None:
    subject = read(authority.user("bridge", "slackwater:bridges")).subject
    assert [one.value for one in subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["bridge"]
    groups = subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    assert [one.value for one in groups] == ["slackwater:bridges"]


def test_a_user_shows_itself_as_a_client(authority: Authority) -> None:
    usage = read(authority.user("bridge")).extensions.get_extension_for_class(x509.ExtendedKeyUsage)
    assert ExtendedKeyUsageOID.CLIENT_AUTH in usage.value


def test_the_authority_signs_them(authority: Authority) -> None:
    top = x509.load_pem_x509_certificate(authority.certificate.read_bytes())
    for pair in (authority.user("bridge"), authority.server("api-server")):
        read(pair).verify_directly_issued_by(top)


def test_the_same_user_keeps_its_files(authority: Authority) -> None:
    assert authority.user("bridge", "a") == authority.user("bridge", "a")
    others = {authority.user("bridge", group).key for group in ("a", "b", "")}
    assert len(others) == 3


def test_a_name_with_colons_and_slashes_is_a_file_of_the_folder(
    authority: Authority, tmp_path: Path
) -> None:
    pair = authority.user("system:node:../n1", "system:nodes")
    assert pair.key.parent == tmp_path / "certificates"
    assert pair.key.is_file()


def test_keys_are_private(authority: Authority) -> None:
    for pair in (authority.user("bridge"), authority.server("api-server")):
        assert stat.S_IMODE(pair.key.stat().st_mode) == 0o600
        assert pair.key.read_text().startswith("-----BEGIN")
