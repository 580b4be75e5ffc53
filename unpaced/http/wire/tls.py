"""The certificate and key of TLS, looked at before the model is loaded."""

import ssl
from pathlib import Path


class TlsError(Exception):
    """Certificate or key cannot be used; the text says which and why."""


def check_certificate(key_file: Path, cert_file: Path) -> None:
    """Raises: TlsError if the two cannot serve TLS together."""
    for flag, path in (("--ssl-key-file", key_file), ("--ssl-cert-file", cert_file)):
        try:
            path.read_bytes()
        except OSError as error:
            raise TlsError(f"{flag}: cannot read {path}: {error.strerror}") from None
    try:
        # No password: a prompt would block a service for good.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert_file, key_file, lambda: b"")
    except (ssl.SSLError, ValueError) as error:
        raise TlsError(
            f"--ssl-cert-file {cert_file} with --ssl-key-file {key_file}: {error}"
        ) from None
