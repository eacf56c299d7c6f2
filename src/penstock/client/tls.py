"""TLS as a client speaks it: whom it trusts, and the certificate that it shows."""

from __future__ import annotations

import os
import ssl

from penstock.model.errors import ConnectionLost, InvalidArgument

Path = str | os.PathLike[str]


class TlsFailed(ConnectionLost):
    """Somebody answers at the address, but client and server do not agree on TLS."""


def explain_tls(address: str, error: ssl.SSLError) -> TlsFailed:
    """What went wrong, and what to give."""
    if "CERTIFICATE_REQUIRED" in (error.reason or ""):
        return TlsFailed(f"{address} asks for a certificate of the client (mutual TLS): give cert and its key")
    return TlsFailed(f"no Penstock server answers at {address} by TLS: {error}")


def client_context(
    tls: bool | ssl.SSLContext, ca: Path | None = None, cert: Path | None = None, key: Path | None = None
) -> ssl.SSLContext | None:
    """What a connection is encrypted with; None: it is not.

    The server must show a certificate for the name that it is reached by, of an authority in the file `ca`, or else
    of one that this machine trusts. A file that is given means TLS.
    """
    files = {"ca": ca, "cert": cert, "key": key}
    given = [name for name, path in files.items() if path is not None]
    if isinstance(tls, ssl.SSLContext):
        if given:
            raise InvalidArgument(f"{', '.join(given)}: load these into the context that is given as tls")
        return tls
    if not isinstance(tls, bool):
        raise InvalidArgument(f"{tls!r:.80} is not True, False or an ssl.SSLContext")
    if not tls and not given:
        return None
    if key is not None and cert is None:
        raise InvalidArgument("key is that of a certificate: give cert too")
    for name, path in files.items():
        _check_readable(name, path)
    try:
        context = ssl.create_default_context(cafile=ca)
    except ssl.SSLError as error:
        raise InvalidArgument(f"ca {ca} has no certificate (PEM)") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if cert is not None:
        try:
            context.load_cert_chain(cert, key, _no_password)
        except ssl.SSLError as error:
            what = f"cert {cert}" + ("" if key is None else f" and key {key}")
            raise InvalidArgument(f"{what} cannot be used ({error.reason}): give PEM files that go together") from error
    return context


def _check_readable(name: str, path: Path | None) -> None:
    try:
        if path is not None:
            with open(path, "rb"):  # noqa: PTH123 - as OpenSSL opens it
                pass
    except OSError as error:
        raise InvalidArgument(f"{name} {os.fspath(path or '')} cannot be read: {error.strerror}") from error


def _no_password() -> str:
    raise InvalidArgument("the key has a password: `openssl pkey -in KEY -out NEW` takes it away")
