"""Certificates for tests, made by openssl: an authority, a server, a client, and others that do not belong to them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple


class Certificates(NamedTuple):
    """Files in PEM."""

    ca: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path
    stranger: Path
    """A certificate that no known authority has signed."""
    stranger_key: Path
    locked_key: Path
    """The key of the server, with a password."""


def make_certificates(directory: Path) -> Certificates:
    """Make all of them."""
    directory.mkdir(exist_ok=True)

    def run(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)

    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    names = ("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    signs = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")  # Python 3.13 asks for it
    run("req", "-x509", *new, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=our authority", "-days", "2", *signs)
    run("req", "-x509", *new, "-keyout", "stranger.key", "-out", "stranger.pem", "-subj", "/CN=x", "-days", "2", *names)
    for name, more in (("server", names), ("client", ())):
        run("req", *new, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}", *more)
        signed = ("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial")
        run(*signed, "-out", f"{name}.pem", "-days", "2", "-copy_extensions", "copy")
    run("pkey", "-in", "server.key", "-aes128", "-passout", "pass:secret", "-out", "locked.key")
    files = ("ca.pem", "server.pem", "server.key", "client.pem", "client.key", "stranger.pem", "stranger.key")
    return Certificates(*(directory / name for name in (*files, "locked.key")))
