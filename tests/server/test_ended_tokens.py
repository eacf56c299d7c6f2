"""A token that ends while somebody waits with it: what comes afterwards is not for them, on any port."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from penstock.client import Client
from penstock.model.errors import Unauthenticated
from penstock.model.tokens import NewToken
from penstock.server.access.tokens import TokenFile
from tests.server.harness import until
from tests.server.http.harness import HttpRunning, Reply
from tests.server.http.test_push import Events
from tests.server.line.harness import Talk

End = Callable[[], None]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpRunning]:
    """A server that asks for tokens, and looks at them and at who is connected as seldom as can be."""
    monkeypatch.setattr("penstock.server.deadlines._LOOK_S", 3600.0)
    monkeypatch.setattr("penstock.server.access.access._LOOK_S", 3600.0)
    with HttpRunning(tmp_path, auth="tokens", line_port=0, idle_timeout=3600 * 4) as running:
        running.broker.create_topic("t", partitions=1)
        running.broker.create_group("t", "g")
        yield running


@pytest.fixture(params=["revoked", "expired"])
def token(request: pytest.FixtureRequest, server: HttpRunning) -> tuple[NewToken, End]:
    """A token, and what ends it."""
    file = TokenFile(server._config.data_dir)
    made = file.create("brief", ["consume", "read"], expires_in="1h")

    def end() -> None:
        if request.param == "revoked":
            file.revoke("brief")
        else:
            server.server.services.access._now_s = lambda: 1e12

    return made, end


def assert_untouched(server: HttpRunning, group: str = "g") -> None:
    """The message is still there for others, who get it."""
    with server.broker.consumer("t", group) as consumer:
        (message,) = consumer.receive(1, wait=20)
        assert message.value == b"secret"
        message.ack()


@pytest.mark.parametrize(
    "path", ["/v1/topics/t/receive?group=g&wait=30", "/v1/topics/t/next?group=g&wait=30&autoack=true", "poll"]
)
def test_a_long_poll_gets_nothing_after_the_end_of_its_token(
    server: HttpRunning, token: tuple[NewToken, End], path: str
) -> None:
    made, end = token
    replies: list[Reply] = []
    if path == "poll":
        join = server.ask("POST", "/v1/groups/g/join", {"topics": ["t"]}, token=made.secret).json
        path = f"/v1/groups/g/poll?member_id={join['member_id']}&timeout=30"
    waiting = threading.Thread(target=lambda: replies.append(server.ask("GET", path, token=made.secret)))
    waiting.start()
    until(lambda: server.waiters() == 1, "it waits")
    end()
    server.broker.publish("t", "secret")
    waiting.join(30)
    assert [reply.status for reply in replies] == [401]
    assert b"secret" not in replies[0].body
    assert_untouched(server)


def test_a_stream_of_events_ends_with_its_token(server: HttpRunning, token: tuple[NewToken, End]) -> None:
    made, end = token
    events = Events(server, "/v1/topics/t/stream?group=g", Authorization=f"Bearer {made.secret}")
    until(lambda: server.waiters() == 1, "it waits")
    end()
    server.broker.publish("t", "secret")
    assert list(events) == []
    events.close()
    assert_untouched(server)


def test_a_websocket_ends_with_its_token(server: HttpRunning, token: tuple[NewToken, End]) -> None:
    made, end = token
    url = f"ws://127.0.0.1:{server.http_port}/v1/topics/t/ws?group=g"
    with connect(url, proxy=None, additional_headers={"Authorization": f"Bearer {made.secret}"}) as socket:
        until(lambda: server.waiters() == 1, "it waits")
        end()
        server.broker.publish("t", "secret")
        with pytest.raises(ConnectionClosed):
            socket.recv(30)
    assert_untouched(server)


@pytest.mark.parametrize("autoack", [False, True])
@pytest.mark.parametrize("pushed", [False, True])
def test_a_native_consumer_gets_nothing_after_the_end_of_its_token(
    server: HttpRunning, token: tuple[NewToken, End], pushed: bool, autoack: bool
) -> None:
    made, end = token
    told: list[object] = []
    with Client(server.address, token=made.secret) as client:
        consumer = client.consumer("t", "g", autoack=autoack)

        def receive() -> None:
            try:
                told.append(next(iter(consumer)) if pushed else consumer.receive(wait=30))
            except Unauthenticated as error:
                told.append(type(error))

        waiting = threading.Thread(target=receive)
        waiting.start()
        until(lambda: server.waiters() == 1, "it waits")
        end()
        server.broker.publish("t", "secret")
        waiting.join(30)
        assert told == [Unauthenticated]
    assert_untouched(server)


def test_a_line_gets_nothing_after_the_end_of_its_token(server: HttpRunning, token: tuple[NewToken, End]) -> None:
    made, end = token
    server.broker.create_group("t", "line")
    with Talk(server.server.addresses["line"][1]) as talk:
        assert talk.say(f"AUTH {made.secret}") == "OK"
        assert talk.say("CONSUME t 0") == "No messages in queue"
        end()
        server.broker.publish("t", "secret")
        assert talk.say("CONSUME t 0").startswith("ERROR")
        assert_untouched(server, "line")
