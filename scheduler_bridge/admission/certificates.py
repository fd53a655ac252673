"""Certificates of our own, for clusters without cert-manager. Called by `slackwater admission`.

An authority that signs one server certificate and is then thrown away: its key is never written, so
nobody can sign another. Renewal makes both anew; the configuration then takes the new authority.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY, CERTIFICATE, KEY = "ca.crt", "tls.crt", "tls.key"
"""As a Secret of type kubernetes.io/tls and cert-manager name them."""
EARLY = timedelta(hours=1)
"""Clocks of a cluster differ."""


def make(folder: Path, names: list[str], days: int) -> None:
    """Write the three PEM files, the key readable by its owner only.

    Raises ValueError for a number of days that is not allowed or files that are there already.
    """
    if not 1 <= days <= 3650:
        raise ValueError(f"days: {days}; allowed: 1 to 3650")
    there = [name for name in (AUTHORITY, CERTIFICATE, KEY) if (folder / name).exists()]
    if there:
        raise ValueError(f"{folder} has {', '.join(there)} already: give another folder")
    folder.mkdir(parents=True, exist_ok=True)
    begin = datetime.now(UTC) - EARLY
    end = begin + EARLY + timedelta(days=days)
    signer, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = _name("slackwater admission authority")
    authority = (
        _builder(issuer, issuer, signer.public_key(), begin, end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(signer, hashes.SHA256())
    )
    leaf = (
        _builder(_name(names[0]), issuer, own.public_key(), begin, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(one) for one in names]), critical=False
        )
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(signer, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    key = own.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    fd = os.open(folder / KEY, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(key)
    (folder / CERTIFICATE).write_bytes(leaf.public_bytes(pem))
    (folder / AUTHORITY).write_bytes(authority.public_bytes(pem))


def service_names(service: str, namespace: str) -> list[str]:
    """How the API server calls a service."""
    return [f"{service}.{namespace}.svc", f"{service}.{namespace}.svc.cluster.local"]


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    begin: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:64])])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
