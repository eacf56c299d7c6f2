"""TLS for every port: the server's certificate, and those that clients must show."""

from __future__ import annotations

import ssl
from typing import Any

from penstock.server.access.starting import StartRefused
from penstock.server.deadlines import HANDSHAKE_S
from penstock.server.settings.options import ServerConfig


def server_context(config: ServerConfig) -> ssl.SSLContext | None:
    """What all ports speak TLS with; None: they do not. Raises StartRefused if the files cannot be used."""
    if config.tls_cert is None or config.tls_key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    _load(context, config.tls_cert, config.tls_key, config.tls_client_ca)
    return context


def peer_context(config: ServerConfig) -> ssl.SSLContext | None:
    """What members of a cluster speak TLS with to one another; None: they do not.

    Whoever answers proves that it knows the secret of the cluster, for this very connection (`protocol/peering.py`):
    that takes the place of a name in its certificate, which may be the same for all members, or any.
    """
    if config.tls_cert is None or config.tls_key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _load(context, config.tls_cert, config.tls_key, None)  # what is shown to servers that ask for a certificate
    return context


def read_certificates_again(context: ssl.SSLContext, config: ServerConfig) -> None:
    """Use the certificates that are in the files now, for connections from now on; the old ones if they are wrong.

    An authority that was taken out of the file of the clients' authorities is trusted until the next start.
    """
    if server_context(config) is not None and config.tls_cert is not None and config.tls_key is not None:
        _load(context, config.tls_cert, config.tls_key, config.tls_client_ca)


def _load(context: ssl.SSLContext, cert: str, key: str, client_ca: str | None) -> None:
    for option, path in (("tls_cert", cert), ("tls_key", key), ("tls_client_ca", client_ca)):
        if path is not None:
            _check_readable(option, path)
    try:
        context.load_cert_chain(cert, key, _no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise StartRefused(
                f"the key in {key} is not that of the certificate in {cert}",
                "tls_key is the file that was made together with tls_cert; the server's own certificate comes first",
            ) from error
        raise StartRefused(
            f"tls_cert {cert} and tls_key {key} cannot be used ({_reason(error)})",
            "both are PEM files: -----BEGIN CERTIFICATE-----, and -----BEGIN PRIVATE KEY----- without a password",
        ) from error
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except ssl.SSLError as error:
            raise StartRefused(
                f"tls_client_ca {client_ca} has no certificate of an authority ({_reason(error)})",
                "it is a PEM file: -----BEGIN CERTIFICATE-----",
            ) from error
        context.verify_mode = ssl.CERT_REQUIRED


def _check_readable(option: str, path: str) -> None:
    try:
        with open(path, "rb"):  # noqa: PTH123 - as OpenSSL opens it
            pass
    except OSError as error:
        raise StartRefused(
            f"{option} {path} cannot be read: {error.strerror}", "give a PEM file that the server may read"
        ) from error


def _no_password() -> str:
    """Keys with a password would have the server wait for somebody to type it."""
    raise StartRefused("the key in tls_key has a password", "`openssl pkey -in KEY -out NEW` takes it away")


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).lower().replace("_", " ")


def listen_options(context: ssl.SSLContext | None) -> dict[str, Any]:
    """What a port that listens with TLS, or without, says of it."""
    return {} if context is None else {"ssl": context, "ssl_handshake_timeout": HANDSHAKE_S}
