"""What a page of another site has a browser send: by which names, from where, and what it takes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.server.access.tokens import TokenFile
from penstock.server.config import ServerConfig
from tests.server.http.harness import HttpRunning
from tests.server.http.test_permissions import _OPERATIONS as OPERATIONS

_CHROME = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 Safari/537.36"
_IMAGE = {"User-Agent": _CHROME, "Accept": "image/*", "Accept-Language": "de-DE", "Accept-Encoding": "gzip, deflate"}
"""What an <img> of another site sends to a plain address: no Origin, no Sec-Fetch-Site."""


@pytest.fixture(scope="module")
def open_to_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpRunning]:
    """A server that answers to any name."""
    with HttpRunning(tmp_path_factory.mktemp("open"), insecure=True, cors_origins="https://app.example") as running:
        yield running


def taking(topic: str, member_id: str = "none") -> list[str]:
    """Every GET that takes messages."""
    return [
        f"/api/v1/queue/{topic}/dequeue",
        f"/v1/topics/{topic}/next",
        f"/v1/topics/{topic}/next?autoack=true",
        f"/topics/{topic}/next?autoack=true",
        f"/v1/topics/{topic}/receive?group=g",
        f"/v1/topics/{topic}/stream?group=g",
        f"/v1/groups/g/poll?member_id={member_id}",
    ]


def test_every_get_that_takes_something_is_known_here() -> None:
    takers = {path for (method, path), (scope, _) in OPERATIONS.items() if method == "GET" and scope == "consume"}
    assert all(
        scope in ("read", "open", "any", "consume") for (method, _), (scope, _) in OPERATIONS.items() if method == "GET"
    )
    ours = {path.replace("{topic}", "t").replace("{queue}", "t").replace("{group}", "g") for path in takers}
    assert ours == {path.partition("?")[0] for path in taking("t") if not path.startswith("/topics")}


def test_a_page_of_another_site_takes_no_message_by_an_image(open_to_all: HttpRunning, topic: str) -> None:
    open_to_all.broker.publish(topic, "precious")
    for sent in (
        _IMAGE,
        {"User-Agent": _CHROME},
        {"User-Agent": "", "Accept-Language": "en"},  # a browser that hides what it is
        {**_IMAGE, "Authorization": "Basic dTpw"},  # of an address such as http://u:p@…
        {**_IMAGE, "Referer": open_to_all.url},
        {**_IMAGE, "Sec-Fetch-Site": "none"},  # a link in a letter
    ):
        for path in taking(topic):
            for host in ("0.0.0.0", "192.168.1.7", "127.0.0.1", "penstock.example"):
                status, text = open_to_all.refused("GET", path, headers={**sent, "Host": host})
                assert (status, "X-Penstock" in text) == (403, True), (path, sent)
    assert not open_to_all.broker.groups(topic)
    assert open_to_all.ask("GET", f"/v1/topics/{topic}/messages", headers=_IMAGE).status == 200  # which takes nothing


@pytest.mark.parametrize(
    "sent",
    [
        {"Sec-Fetch-Site": "same-origin"},
        {"Origin": "https://app.example", "Sec-Fetch-Site": "cross-site"},
        {"X-Penstock": "1"},
        {"Authorization": "Bearer x"},
    ],
)
def test_a_browser_that_shows_that_no_page_of_others_sent_it_takes_messages(
    open_to_all: HttpRunning, topic: str, sent: dict[str, str]
) -> None:
    open_to_all.broker.publish(topic, "precious")
    reply = open_to_all.ask("GET", f"/api/v1/queue/{topic}/dequeue", headers={**_IMAGE, **sent})
    assert (reply.status, reply.body) == (200, b"precious")


@pytest.mark.parametrize(
    "sent",
    [
        {},
        {"User-Agent": "curl/8.5.0", "Accept": "*/*"},
        {"User-Agent": "python-requests/2.32.3", "Accept": "*/*", "Accept-Encoding": "gzip, deflate"},
        {"User-Agent": "Go-http-client/1.1", "Accept-Encoding": "gzip"},
        {"User-Agent": "node", "Accept": "*/*", "Accept-Language": "*", "Sec-Fetch-Mode": "cors"},
    ],
)
def test_programs_take_messages_without_more_headers(server: HttpRunning, topic: str, sent: dict[str, str]) -> None:
    server.broker.publish(topic, "precious")
    reply = server.ask("GET", f"/api/v1/queue/{topic}/dequeue", headers=sent)
    assert (reply.status, reply.body) == (200, b"precious")


def test_curl_takes_from_a_queue_as_the_docs_say(server: HttpRunning, topic: str) -> None:
    server.broker.publish_many(topic, ["a", "b"])

    def curl(path: str) -> bytes:
        return subprocess.run(["curl", "-sSf", server.url + path], capture_output=True, check=True).stdout

    assert curl(f"/api/v1/queue/{topic}/dequeue") == b"a"
    assert json.loads(curl(f"/v1/topics/{topic}/next?autoack=true&group=queue"))["value"] == "b"


def test_another_page_of_this_machine_does_not_use_the_cookie_of_the_dashboard(tmp_path: Path) -> None:
    with HttpRunning(tmp_path, auth="tokens") as server:
        secret = TokenFile(tmp_path).create("all", ["admin"]).secret
        server.broker.publish("q", "precious")
        cookie = {"Cookie": f"penstock_token={secret}", "Host": "box:8080"}  # same site, for a port is none
        assert server.refused("GET", "/api/v1/queue/q/dequeue", headers={**_IMAGE, **cookie})[0] == 403
        assert server.ask("GET", "/api/v1/queue/q/dequeue", headers=_IMAGE, token=secret).body == b"precious"


def test_a_server_without_tokens_answers_only_to_names_of_its_own(tmp_path: Path) -> None:
    with HttpRunning(tmp_path / "a", host="127.0.0.2", http_hosts="Penstock.internal 10.1.2.3") as server:
        port = server.http_port
        own = [
            "localhost",
            "LOCALHOST",
            "my.localhost",
            "127.0.0.1",
            "[::1]",
            "127.0.0.2",
            "penstock.INTERNAL",
            "10.1.2.3",
        ]
        others = ["0.0.0.0", "[::]", "127.0.0.3", "192.168.1.7", "[::ffff:127.0.0.1]", "localhost.", "evil.example"]
        others += ["localhost.evil.example", "127.0.0.1.evil.example", "notlocalhost", "2130706433", "0"]

        def status(host: str) -> str:
            url = f"http://127.0.0.2:{port}/v1/topics"
            found = ["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "-H", f"Host: {host}", url]
            return subprocess.run(found, capture_output=True, check=True, text=True).stdout

        for host in own:
            assert [status(host), status(f"{host}:{port}")] == ["200", "200"], host
        for host in others:
            assert [status(host), status(f"{host}:{port}")] == ["403", "403"], host
    with HttpRunning(tmp_path / "b", insecure=True, http_hosts="box") as named:
        assert named.ask("GET", "/v1/topics", headers={"Host": "box"}).status == 200
        assert named.refused("GET", "/v1/topics", headers={"Host": "0.0.0.0"})[0] == 403


@pytest.mark.parametrize("given", ["https://box", "box:8080", "*.example", "a,b", 7])
def test_names_of_hosts_are_checked(given: Any) -> None:
    with pytest.raises(ValueError, match=r"host|names"):
        ServerConfig.parse({"http_hosts": given})
