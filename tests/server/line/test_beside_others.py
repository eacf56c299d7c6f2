"""The same broker as behind every port, and the programs that people have."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from penstock.client import Client
from penstock.model.errors import LimitExceeded
from penstock.server.line.consumers import GROUP
from tests.server.harness import PATIENCE_S, until
from tests.server.line.harness import LineServer, Talk

# The same broker behind every port.


def test_the_trace_of_a_message_is_the_same_as_from_the_native_port(server: LineServer, talk: Talk) -> None:
    assert talk.say("PRODUCE text 0 hello") == "OK"
    assert talk.say("CONSUME text 0") == "0 hello"
    assert talk.say("ACK text 0 0") == "ACK_OK"
    with Client(server.running.address) as client:
        client.publish("native", "hello", partition=0)
        with client.consumer("native", GROUP) as consumer:
            (message,) = consumer.receive(1, wait=PATIENCE_S)
            message.ack()

    def happened(topic: str) -> list[tuple[object, ...]]:
        trace = server.broker.trace(f"{topic}/0/0")
        return [(line.kind, line.group, line.attempt, line.cause) for line in trace.lines]

    assert happened("text") == happened("native")
    assert [kind for kind, *_ in happened("text")] == ["published", "delivered", "acked"]


def test_a_publish_that_is_too_large_or_too_much_is_refused_as_everywhere(tmp_path: Path) -> None:
    with LineServer(tmp_path, broker={"max_value_bytes": 10}) as server, server.talk() as talk:
        with Client(server.running.address) as client, pytest.raises(LimitExceeded) as refused:
            client.publish("t", "x" * 11)
        assert talk.say(f"PRODUCE t 0 {'x' * 11}") == f"ERROR: {refused.value}"
        server.broker.create_topic("full", max_backlog=1)
        assert talk.say("PRODUCE full 0 x") == "OK"
        assert talk.say("CONSUME full 0") == "0 x"
        assert talk.say("PRODUCE full 0 x").startswith("ERROR: ")


def test_requests_and_connections_are_counted(server: LineServer, talk: Talk) -> None:
    talk.send("PING\nPRODUCE t 0 x\nCONSUME t 0\nACK t 0 0\nACK t 0 0\nnonsense\n")
    for _ in range(6):
        talk.hear()
    meter = server.running.server.services.metrics.ports["line"]
    assert set(meter.requests) == {"ping", "produce", "consume", "ack", "invalid"}
    assert {name: count for name, count in meter.failures.items() if count} == {"ack": 1, "invalid": 1}
    assert meter.open == 1
    talk.close()
    until(lambda: meter.open == 0)


# With the programs that people have.


def program(name: str, package: str) -> str:
    found = shutil.which(name)
    assert found is not None, f"install {name} (Debian: {package})"
    return found


def test_nc_produces_consumes_and_quits(server: LineServer) -> None:
    said = "PRODUCE user-signups 0 new user: alex\nCONSUME user-signups 0\nACK user-signups 0 0\nQUIT\n"
    nc = [program("nc", "netcat-openbsd"), "127.0.0.1", str(server.port)]
    done = subprocess.run(nc, input=said, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (0, "OK\n0 new user: alex\nACK_OK\nBYE\n")
    half = [nc[0], "-N", *nc[1:]]
    done = subprocess.run(half, input="PING\n", capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (0, "PONG\n")


def test_telnet_produces_consumes_and_quits(server: LineServer) -> None:
    telnet = [program("telnet", "telnet"), "127.0.0.1", str(server.port)]
    with subprocess.Popen(telnet, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        heard = process.stdout
        until(lambda: heard.readline().startswith("Escape character"))
        for said, reply in [
            ("produce user-signups 0 new user: alex", "OK"),
            ("consume user-signups 0", "0 new user: alex"),
            ("ack user-signups 0 0", "ACK_OK"),
            ("quit", "BYE"),
        ]:
            process.stdin.write(said + "\n")
            process.stdin.flush()
            assert heard.readline().rstrip("\r\n") == reply
        process.wait(PATIENCE_S)
