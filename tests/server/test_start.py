"""A whole server from its start to its end, as people run it: its ports, signals, certificates, and taken ports."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from websockets.sync.client import connect

import penstock
from tests.server.certificates import Certificates, make_certificates
from tests.server.harness import PATIENCE_S, Child, free_port, until
from tests.server.http.harness import HttpRunning


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def ask(port: int, path: str, body: str | None = None, host: str = "127.0.0.1") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(host, port, timeout=PATIENCE_S)
    try:
        connection.request("GET" if body is None else "POST", path, body)
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()


def test_what_is_slow_to_load_is_loaded_after_the_start() -> None:
    load = "import sys, penstock.server.server, penstock.server.http.listener, penstock.server.line.listener"
    seen = "; print([name for name in ('litestar', 'pyarrow', 'pydantic', 'numpy') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", load + seen], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_requests_right_after_the_start_are_answered(tmp_path: Path) -> None:
    with HttpRunning(tmp_path) as server:
        assert server.ask("POST", "/v1/topics/t/publish", {"value": "x"}).status == 200
        assert server.get("/v1/topics")["total"] == 1


def test_a_server_that_is_stopped_right_after_its_start_ends_well(tmp_path: Path) -> None:
    for _ in range(3):
        with HttpRunning(tmp_path, line_port=0):
            pass


def test_what_was_acknowledged_before_a_stop_is_there_and_the_stop_is_clean(tmp_path: Path) -> None:
    port = free_port()
    child = Child(tmp_path / "data", "--http-port", str(port), "--line-port", "off")
    acknowledged: list[str] = []
    stopping = threading.Event()

    def publish(name: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        try:
            for number in range(1_000_000):
                connection.request("POST", "/v1/topics/t/publish", json.dumps({"value": f"{name}-{number}"}))
                reply = connection.getresponse()
                reply.read()
                if reply.status != 200:
                    assert stopping.is_set() and reply.status == 503
                    return
                acknowledged.append(f"{name}-{number}")
        except (OSError, http.client.HTTPException):
            assert stopping.is_set()
        finally:
            connection.close()

    with child:
        threads = [threading.Thread(target=publish, args=(f"p{number}",)) for number in range(4)]
        for thread in threads:
            thread.start()
        until(lambda: len(acknowledged) > 200, "some are acknowledged")
        stopping.set()
        child.signal(signal.SIGTERM)
        assert child.wait() == 0
        for thread in threads:
            thread.join()
        assert '"level":"error"' not in child.log().lower()
    with penstock.open(tmp_path / "data") as broker:
        stored = [message.value.decode() for message in broker.read("t")]
    assert set(acknowledged) <= set(stored) and len(set(stored)) == len(stored)


def test_a_port_that_is_taken_is_told_and_nothing_is_left_running(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for option in ("--http-port", "--line-port"):
            ports = {"--native-port": "0", "--http-port": "0", "--line-port": "0", option: port}
            arguments = [text for pair in ports.items() for text in pair]
            done = subprocess.run(
                [sys.executable, "-m", "penstock.cli.main", "serve", str(tmp_path / "data"), *arguments],
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
            )
            assert done.returncode not in (0, -6) and port in done.stderr and option in done.stderr
            assert "Traceback" not in done.stderr
    with penstock.open(tmp_path / "data"):
        pass  # it is not locked


def test_a_directory_with_files_of_others_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    (tmp_path / "photos").mkdir()
    serve = [sys.executable, "-m", "penstock.cli.main", "serve", str(tmp_path), "--native-port", "0"]
    done = subprocess.run(serve, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 2 and "it has letter.txt, photos (hint: give a directory that is empty" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["letter.txt", "photos"]


def test_a_directory_with_nothing_but_what_belongs_there_is_taken(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "lost+found").mkdir(parents=True)
    (data / ".snapshot").mkdir()
    (data / "penstock.yaml").write_text("server: {insecure: false}\n")
    token = [sys.executable, "-m", "penstock.cli.main", "token", "create", "me", "--scope", "admin", "--dir", str(data)]
    subprocess.run(token, check=True, capture_output=True, timeout=PATIENCE_S)
    options = ("--config", str(data / "penstock.yaml"), "--http-port", "off", "--line-port", "off")
    child = Child(data, *options)
    for _ in range(2):
        child.start()
        child.signal(signal.SIGTERM)
        assert child.wait() == 0
        (data / "letter.txt").write_text("dear")  # it is ours by now


def test_ports_that_are_off_are_not_there(tmp_path: Path) -> None:
    with Child(tmp_path / "data", "--http-port", "off", "--line-port", "off") as child:
        assert '"http"' not in child.log() and '"line"' not in child.log()
        with penstock.connect(child.address) as client:
            client.publish("t", "x")
        child.signal(signal.SIGTERM)
        assert child.wait() == 0


def test_a_server_listens_on_ipv6(tmp_path: Path) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with HttpRunning(tmp_path, host="::1", line_port=0) as server:
        assert ask(server.http_port, "/livez", host="::1")[0] == 200
        status, reply = ask(server.http_port, "/v1/topics/t/publish", '{"value": "x"}', host="::1")
        assert (status, json.loads(reply)["id"]) == (200, "t/0/0")
        with penstock.connect(f"[::1]:{server.port}") as client:
            assert [message.value for message in client.read("t")] == [b"x"]


def _expired(made: Certificates, directory: Path) -> tuple[Path, Path]:
    """A certificate of a client that the authority has signed, and that is over."""
    (directory / "index.txt").write_text("")
    (directory / "settings").write_text(
        "[ca]\ndefault_ca=d\n[d]\ndatabase=index.txt\nnew_certs_dir=.\nserial=serial\ndefault_md=sha256\npolicy=p\n[p]\n"
    )
    authority = ("-cert", str(made.ca), "-keyfile", str(made.ca.with_name("ca.key")), "-config", "settings")
    dates = ("-startdate", "20200101000000Z", "-enddate", "20200102000000Z", "-create_serial", "-batch", "-notext")
    wanted = ("-in", str(made.client.with_suffix(".csr")), "-out", "expired.pem")
    subprocess.run(["openssl", "ca", *authority, *dates, *wanted], cwd=directory, check=True, capture_output=True)
    return directory / "expired.pem", made.client_key


def test_mutual_tls_counts_on_every_port(tmp_path: Path, certificates: Certificates) -> None:
    made = certificates
    options = {"tls_cert": str(made.server), "tls_key": str(made.server_key), "tls_client_ca": str(made.ca)}
    with HttpRunning(tmp_path / "data", line_port=0, **options) as server:
        known = ssl.create_default_context(cafile=str(made.ca))
        known.load_cert_chain(made.client, made.client_key)
        connection = http.client.HTTPSConnection("localhost", server.http_port, context=known, timeout=PATIENCE_S)
        connection.request("POST", "/v1/topics/t/publish", '{"value": "x"}')
        assert connection.getresponse().status == 200
        connection.close()
        with connect(f"wss://localhost:{server.http_port}/v1/topics/t/ws?group=g", ssl=known, proxy=None) as client:
            assert json.loads(client.recv(PATIENCE_S))["value"] == "x"
        for shown in (None, (made.stranger, made.stranger_key), _expired(made, tmp_path)):
            context = ssl.create_default_context(cafile=str(made.ca))
            if shown is not None:
                context.load_cert_chain(*shown)
            for _, port in server.server.addresses.values():
                with (
                    pytest.raises((ssl.SSLError, ConnectionError)),
                    socket.create_connection(("localhost", port), PATIENCE_S) as plain,
                    context.wrap_socket(plain, server_hostname="localhost") as line,
                ):
                    line.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    if not line.recv(1000):
                        raise ConnectionError
        until(lambda: server.server.services.metrics.connections == 0, "nobody is left")


def test_new_certificates_are_taken_on_sighup_by_the_http_port(tmp_path: Path, certificates: Certificates) -> None:
    made = certificates
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert.write_bytes(made.server.read_bytes())
    key.write_bytes(made.server_key.read_bytes())
    port = free_port()
    tls = ("--tls-cert", str(cert), "--tls-key", str(key), "--http-port", str(port), "--line-port", "off")

    def shown() -> str:
        return ssl.get_server_certificate(("127.0.0.1", port), timeout=PATIENCE_S)

    with Child(tmp_path / "data", *tls) as child:
        assert shown().strip() == made.server.read_text().strip()
        cert.write_bytes(made.stranger.read_bytes())
        child.signal(signal.SIGHUP)  # the key is still the old one: nothing is changed
        until(lambda: "was not taken" in child.log(), "it was refused")
        assert shown().strip() == made.server.read_text().strip()
        key.write_bytes(made.stranger_key.read_bytes())
        child.signal(signal.SIGHUP)
        until(lambda: shown().strip() == made.stranger.read_text().strip(), "the new one is shown")
        child.signal(signal.SIGTERM)
        assert child.wait() == 0
