"""TLS from files that may change: certificates are renewed every few weeks, and nobody restarts a monitor for that."""

from __future__ import annotations

import logging
import os
import ssl
import threading
from dataclasses import dataclass

__all__ = ["Tls", "TlsFiles"]

log = logging.getLogger("wedgewatch.web")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Certificate chain and key in PEM. With ``client_ca_file`` only clients with a certificate of that CA get in."""

    cert_file: str
    key_file: str
    client_ca_file: str = ""


class Tls:
    """A TLS context that follows its files: a renewed certificate needs no restart."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._stamp = self._read_stamp()
        self._context = self._load()

    def context(self) -> ssl.SSLContext:
        stamp = self._read_stamp()
        with self._lock:
            if stamp != self._stamp:
                try:
                    self._context = self._load()
                except (OSError, ValueError) as error:
                    log.warning("the TLS files changed and cannot be used, the old ones stay: %s", error)
                self._stamp = stamp
            return self._context

    def _read_stamp(self) -> tuple[int, ...]:
        stamps = []
        for name in (self._files.cert_file, self._files.key_file):
            try:
                stamps.append(os.stat(name).st_mtime_ns)
            except OSError:
                stamps.append(0)
        return tuple(stamps)

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self._files.cert_file, self._files.key_file)
        if self._files.client_ca_file:
            context.load_verify_locations(self._files.client_ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
        return context
