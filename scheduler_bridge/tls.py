"""Server certificates that rotate while the server runs. Called by `scheduler_bridge.http`.

Kubernetes replaces the files of a mounted secret at any time. They are looked at every few seconds;
connections made from then on are served by the new pair and judged by the new authority. A pair
that cannot be used (half written, key of another certificate) leaves the old one in force.
"""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger("slackwater.bridge")
Stamp = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: our certificate with its chain, its key, and who may sign clients' certificates.

    Without ``client_ca`` nobody is asked for a certificate.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None

    @property
    def each(self) -> tuple[Path, ...]:
        return tuple(path for path in (self.certificate, self.key, self.client_ca) if path)


class RotatingTls:
    """`outer` is what the server listens with; each handshake is handed to the newest context."""

    def __init__(self, files: TlsFiles) -> None:
        """Raises ValueError when the files cannot be used: a start without TLS is no start."""
        self._files = files
        try:
            self._stamp = self._look()
            self.current = _context(files)
        except (OSError, ssl.SSLError) as error:
            names = ", ".join(map(str, files.each))
            raise ValueError(
                f"TLS files {names} cannot be used: {error}; give PEM files that we may read, "
                "the key being that of the certificate"
            ) from None
        self.outer = _context(files)
        self.outer.sni_callback = self._hand_over

    def refresh(self) -> bool | None:
        """Read files that changed: True when they are in force, False when not, None: no change."""
        try:
            stamp = self._look()
            if stamp == self._stamp:
                return None
            self.current = _context(self._files)
        except (OSError, ssl.SSLError) as error:
            log.warning("new TLS files cannot be used yet, the old ones stay: %s", error)
            return False
        self._stamp = stamp
        log.info("TLS files were read again: %s", self._files.certificate)
        return True

    def _look(self) -> Stamp:
        found = [path.stat() for path in self._files.each]
        return tuple((one.st_ino, one.st_mtime_ns, one.st_size) for one in found)

    def _hand_over(
        self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _context: ssl.SSLContext
    ) -> None:
        connection.context = self.current


def _context(files: TlsFiles) -> ssl.SSLContext:
    """TLS 1.2 and newer; no session outlives its connection, so nobody resumes a past trust."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    context.load_cert_chain(files.certificate, files.key)
    if files.client_ca is not None:
        # Optional here: probes have no certificate. Who asks without one is refused by path.
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(files.client_ca)
    return context
