"""TLS: what the native port speaks, whom it refuses, and what is wrong with certificates."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.client import AsyncClient, Client
from penstock.client.connection import client_context
from penstock.model.errors import ConnectionLost, InvalidArgument
from penstock.protocol.frames import VERSION, Command, frame
from penstock.protocol.session import Hello, encode
from penstock.server.access.starting import StartRefused
from penstock.server.access.tls import server_context
from tests.server.certificates import Certificates
from tests.server.harness import Child, Raw, Running, config_of, run, until


def tls_of(certificates: Certificates, *, mutual: bool = False) -> dict[str, Any]:
    options = {"tls_cert": str(certificates.server), "tls_key": str(certificates.server_key)}
    return options | ({"tls_client_ca": str(certificates.ca)} if mutual else {})


def test_everything_goes_through_tls(tmp_path: Path, certificates: Certificates) -> None:
    with Running(tmp_path, **tls_of(certificates)) as server:
        with penstock.connect(server.address, ca=certificates.ca) as client:
            client.publish_many("t", [b"x" * 100_000] * 50)  # many records of TLS
            with client.consumer("t", "g") as consumer:
                received = [next(iter(consumer)) for _ in range(2)] + consumer.receive(100)
                consumer.ack(received)
            assert sum(len(message.value) for message in client.read("t")) == 5_000_000

        async def main() -> None:
            async with AsyncClient(f"localhost:{server.port}", ca=certificates.ca) as client:
                await client.publish("t", "x")
            async with AsyncClient(server.address, tls=client_context(tls=True, ca=certificates.ca) or False) as client:
                await client.publish("t", "x")

        run(main())


def test_a_client_reconnects_by_tls(tmp_path: Path, certificates: Certificates) -> None:
    with Running(tmp_path, **tls_of(certificates)) as server, Client(server.address, ca=certificates.ca) as client:
        client.publish("t", "x")
        first = client._client.link.generation
        (connection,) = server.native.connections
        server.call(connection.abort)
        client.publish("t", "y")
        assert client._client.link.generation == first + 1


def test_a_client_trusts_only_whom_it_should(tmp_path: Path, certificates: Certificates) -> None:
    with Running(tmp_path, **tls_of(certificates)) as server:
        with pytest.raises(ConnectionLost, match=r"by TLS.*certificate verify failed"):
            Client(server.address, tls=True)  # this machine does not know our authority
        with pytest.raises(ConnectionLost, match="certificate verify failed"):
            Client(server.address, ca=certificates.stranger)


def test_a_certificate_is_for_the_name_that_the_server_is_reached_by(
    tmp_path: Path, certificates: Certificates
) -> None:
    files: dict[str, Any] = {
        "tls_cert": str(certificates.client),
        "tls_key": str(certificates.client_key),
    }  # has no names at all
    with Running(tmp_path, **files) as server, pytest.raises(ConnectionLost, match=r"not valid for '127\.0\.0\.1'"):
        Client(server.address, ca=certificates.ca)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_old_versions_of_tls_are_refused(tmp_path: Path, certificates: Certificates, version: ssl.TLSVersion) -> None:
    context = ssl.create_default_context(cafile=certificates.ca)
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    with Running(tmp_path, **tls_of(certificates)) as server, pytest.raises(ConnectionLost):
        Client(server.address, tls=context)


def test_mutual_tls_refuses_who_shows_no_certificate_of_the_authority(
    tmp_path: Path, certificates: Certificates
) -> None:
    with Running(tmp_path, **tls_of(certificates, mutual=True)) as server:
        shown: dict[str, Any] = {"cert": certificates.client, "key": certificates.client_key}
        with Client(server.address, ca=certificates.ca, **shown) as client:
            client.publish("t", "x")
        wrongs: list[dict[str, Any]] = [{}, {"cert": certificates.stranger, "key": certificates.stranger_key}]
        for wrong in wrongs:
            with pytest.raises(ConnectionLost):
                Client(server.address, ca=certificates.ca, **wrong)
        context = ssl.create_default_context(cafile=certificates.ca)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(ConnectionLost):
            Client(server.address, tls=context)
        assert [topic.name for topic in server.broker.topics()] == ["t"]


def test_tls_and_plain_do_not_mix_and_say_so(tmp_path: Path, certificates: Certificates) -> None:
    with Running(tmp_path / "a", **tls_of(certificates)) as server:
        with pytest.raises(ConnectionLost, match="a server that speaks TLS does: give tls or ca"):
            Client(server.address)
        with Raw(server.port, hello=False) as raw:
            raw.socket.sendall(frame(Command.HELLO, 1, encode(Hello([VERSION]))))
            assert raw.ended()
    with Running(tmp_path / "b") as server, pytest.raises(ConnectionLost, match=r"answers at .* by TLS"):
        Client(server.address, ca=certificates.ca)


def test_who_does_not_finish_the_handshake_does_not_stay(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.server.access.tls.HANDSHAKE_S", 0.05)
    with Running(tmp_path, **tls_of(certificates)) as server, socket.create_connection(server.server.address) as silent:
        silent.settimeout(30)
        assert silent.recv(100) == b""


# What is wrong with files.


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"tls_cert": "nowhere"}, "tls_cert nowhere cannot be read: No such file"),
        ({"tls_key": "nowhere"}, "tls_key nowhere cannot be read: No such file"),
        ({"tls_client_ca": "nowhere"}, "tls_client_ca nowhere cannot be read: No such file"),
        ({"tls_key": "stranger_key"}, "is not that of the certificate in"),
        ({"tls_cert": "server_key"}, "cannot be used"),
        ({"tls_client_ca": "server_key"}, "has no certificate of an authority"),
        ({"tls_key": "locked_key"}, "the key in tls_key has a password"),
    ],
)
def test_a_server_does_not_start_with_files_that_cannot_be_used(
    tmp_path: Path, certificates: Certificates, changed: dict[str, str], problem: str
) -> None:
    files = {name: str(getattr(certificates, file, file)) for name, file in changed.items()}
    config = config_of(tmp_path / "data", **{**tls_of(certificates), **files})
    with pytest.raises(StartRefused, match=problem) as refused:
        server_context(config)
    assert refused.value.hint
    with pytest.raises(StartRefused), Running(tmp_path / "data", **{**tls_of(certificates), **files}):
        pass
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"tls_cert": "x"}, "tls_cert and tls_key go together"),
        ({"tls_key": "x"}, "tls_cert and tls_key go together"),
        ({"tls_client_ca": "x"}, "tls_client_ca needs tls_cert and tls_key"),
    ],
)
def test_half_of_the_options_is_a_mistake(tmp_path: Path, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        config_of(tmp_path, **options)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"ca": "nowhere"}, "ca nowhere cannot be read: No such file"),
        ({"cert": "nowhere"}, "cert nowhere cannot be read: No such file"),
        ({"key": "client_key"}, "give cert too"),
        ({"ca": "client_key"}, "has no certificate"),
        ({"cert": "client", "key": "stranger_key"}, "give PEM files that go together"),
        ({"cert": "server", "key": "locked_key"}, "the key has a password"),
        ({"tls": "yes"}, "'yes' is not True, False or an ssl.SSLContext"),
        ({"tls": ssl.create_default_context(), "ca": "ca"}, "ca: load these into the context"),
    ],
)
def test_what_a_client_cannot_use_is_told_before_it_connects(
    certificates: Certificates, options: dict[str, Any], problem: str
) -> None:
    found = {name: getattr(certificates, str(value), value) for name, value in options.items()}
    with pytest.raises(InvalidArgument, match=re.escape(problem)):
        Client("127.0.0.1:1", **found)


# A server as a process.


def test_the_command_says_in_one_line_what_is_wrong(tmp_path: Path, certificates: Certificates) -> None:
    def serve(*arguments: str | Path) -> str:
        command = [sys.executable, "-m", "penstock.cli.main", "serve", tmp_path / "data", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        assert done.returncode == 2
        line: str
        (line,) = done.stderr.splitlines()
        assert re.fullmatch(r"error: .* \(hint: .*\)", line)
        return line

    files = ("--tls-cert", certificates.server, "--tls-key")
    assert "is not that of the certificate" in serve(*files, certificates.client_key)
    assert "has a password" in serve(*files, certificates.locked_key)
    assert "0.0.0.0 can be reached from other machines" in serve("--host", "0.0.0.0")
    assert not (tmp_path / "data").exists()


def test_certificates_and_tokens_are_read_again_on_sighup(tmp_path: Path, certificates: Certificates) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    shutil.copy(certificates.stranger, cert)
    shutil.copy(certificates.stranger_key, key)
    arguments = ("--tls-cert", str(cert), "--tls-key", str(key), "--http-port", "off", "--line-port", "off")
    with Child(tmp_path / "data", *arguments) as child:
        with Client(child.address, ca=certificates.stranger) as before:
            with pytest.raises(ConnectionLost):
                Client(child.address, ca=certificates.ca)
            key.write_text("half of a key")
            child.signal(signal.SIGHUP)
            until(lambda: "cannot be used" in child.log(), "the problem")
            with Client(child.address, ca=certificates.stranger) as still:  # those of before are used on
                still.ping()
            shutil.copy(certificates.server, cert)
            shutil.copy(certificates.server_key, key)
            child.signal(signal.SIGHUP)
            until(lambda: "certificates were read again" in child.log(), "the new certificates")
            with Client(child.address, ca=certificates.ca) as client:
                client.publish("t", "x")
            before.publish("t", "y")  # connections of before stay
        with pytest.raises(ConnectionLost):
            Client(child.address, ca=certificates.stranger)
