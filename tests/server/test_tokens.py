"""The file of the tokens, and who is let in by it."""

from __future__ import annotations

import json
import logging
import os
import re
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import Forbidden, InvalidArgument, Overloaded, Unauthenticated
from penstock.server.access import access as access_module
from penstock.server.access import rates
from penstock.server.access.access import Access
from penstock.server.access.principal import ANYBODY, Principal, Scope
from penstock.server.access.rates import RateLimited, RateLimits, rate_key
from penstock.server.access.tokens import TokenFile, TokensDamaged, id_of
from tests.server.harness import config_of


class Clock:
    def __init__(self) -> None:
        self.now_s = time.time()

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def file(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def access_to(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Access]:
    """Makes an Access to the directory, which looks at the file whenever it is asked."""
    monkeypatch.setattr(access_module, "_LOOK_S", 0.0)
    return lambda: Access(config_of(tmp_path, auth="tokens"), clock)


# The file.


def test_a_secret_is_in_what_create_returns_and_nowhere_in_the_file(file: TokenFile) -> None:
    made = file.create("shop", ["publish", "read"], ["orders.*"], "30d")
    assert re.fullmatch(r"pst_[0-9a-f]{12}_[A-Za-z0-9_-]{43}", made.secret)
    assert id_of(made.secret) == made.token.id
    content = file.path.read_text()
    assert made.secret not in content
    assert made.secret.split("_", 2)[2] not in content
    (stored,) = file.read()
    assert stored.info == made.token
    assert (stored.scopes, stored.topics) == (("publish", "read"), ("orders.*",))
    assert made.token.expires_at is not None
    assert (made.token.expires_at - made.token.created_at).days == 30


def test_only_the_owner_may_read_the_file_whatever_the_umask_is(file: TokenFile) -> None:
    before = os.umask(0)
    try:
        file.create("a", ["read"])
        file.create("b", ["read"])
    finally:
        os.umask(before)
    for path in file.path.parent.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_what_a_crash_left_behind_is_in_nobodys_way(file: TokenFile) -> None:
    left = file.path.with_name("tokens.json.tmp")
    left.write_text("half of a fi")
    left.chmod(0o666)
    file.create("a", ["read"])
    assert not left.exists()
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert [token.name for token in file.read()] == ["a"]


def test_a_crash_before_the_rename_leaves_the_file_as_it_was(file: TokenFile, monkeypatch: pytest.MonkeyPatch) -> None:
    file.create("a", ["read"])
    before = file.path.read_bytes()

    def crash(*_: object) -> None:
        raise OSError("power cut")

    monkeypatch.setattr(os, "fsync", crash)
    with pytest.raises(OSError, match="power cut"):
        file.create("b", ["read"])
    assert file.path.read_bytes() == before


def test_many_can_make_tokens_at_once(file: TokenFile) -> None:
    threads = [threading.Thread(target=file.create, args=(f"t{number}", ["read"])) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {token.name for token in file.read()} == {f"t{number}" for number in range(12)}


def test_a_token_is_revoked_by_id_or_name(file: TokenFile) -> None:
    first, second = file.create("a", ["read"]), file.create("b", ["read"])
    assert file.revoke("a") == first.token
    assert file.revoke(second.token.id) == second.token
    assert file.read() == []
    with pytest.raises(InvalidArgument, match="there is no token 'a'"):
        file.revoke("a")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("", ["read"]), "is not the name of a token"),
        (("a.b", ["read"]), "is not the name of a token"),  # stages of a token are called <name>.<stage>
        (("a" * 65, ["read"]), "is not the name of a token"),
        (("0123456789ab", ["read"]), "is not the name of a token"),  # it looks like an id
        ((7, ["read"]), "is not the name of a token"),
        (("a", []), "say what the token is for"),
        (("a", "read"), "say what the token is for"),
        (("a", ["write"]), "'write' is not a scope: there are admin, publish, consume, read"),
        (("a", [["read"]]), "is not a scope"),
        (("a", ["read"], []), "give one or more patterns"),
        (("a", ["read"], "x"), "give one or more patterns"),
        (("a", ["read"], ["a/b"]), "'a/b' is not a pattern of topics"),
        (("a", ["read"], ["[a-z]"]), "is not a pattern of topics"),
        (("a", ["read"], ["*"], "0s"), "shorter"),
        (("a", ["read"], ["*"], "1000000d"), "too long for a token"),
        (("a", ["read"], ["*"], "soon"), "soon"),
        (("there", ["read"]), "there is a token 'there' already"),
    ],
)
def test_what_cannot_be_a_token_is_refused(file: TokenFile, arguments: tuple[Any, ...], problem: str) -> None:
    file.create("there", ["admin"])
    before = file.path.read_bytes()
    with pytest.raises(InvalidArgument, match=re.escape(problem)):
        file.create(*arguments)
    assert file.path.read_bytes() == before


def changed(file: TokenFile, change: Callable[[dict[str, Any]], object]) -> bytes:
    content = json.loads(file.path.read_bytes())
    change(content)
    return json.dumps(content).encode()


DAMAGES: dict[str, Callable[[TokenFile], bytes]] = {
    "empty": lambda _: b"",
    "cut off": lambda file: file.path.read_bytes()[:-20],
    "no JSON": lambda _: b"\x00" * 100,
    "another version": lambda file: changed(file, lambda found: found.update(version=2)),
    "more than is known": lambda file: changed(file, lambda found: found.update(more=1)),
    "an unknown scope": lambda file: changed(file, lambda found: found["tokens"][0].update(scopes=["root"])),
    "no scopes": lambda file: changed(file, lambda found: found["tokens"][0].update(scopes=[])),
    "no topics": lambda file: changed(file, lambda found: found["tokens"][0].update(topics=[])),
    "no hash": lambda file: changed(file, lambda found: found["tokens"][0].update(sha256="")),
    "an unknown key of a token": lambda file: changed(file, lambda found: found["tokens"][0].update(expire="x")),
    "a time without a zone": lambda file: changed(
        file, lambda found: found["tokens"][0].update(expires="2026-01-01T00:00:00")
    ),
    "two of a name": lambda file: changed(file, lambda found: found["tokens"].append(found["tokens"][0])),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_refuses_everybody_and_says_so(
    file: TokenFile,
    access_to: Callable[[], Access],
    damage: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    secret = file.create("a", ["admin"]).secret
    access = access_to()
    principal = access.authenticate(secret)
    whole = file.path.read_bytes()
    file.path.write_bytes(DAMAGES[damage](file))
    with pytest.raises(TokensDamaged, match=r"tokens\.json is not a file of tokens"):
        file.read()
    with pytest.raises(Unauthenticated, match="cannot read its tokens"):
        access.check(principal)
    for refused in (access, access_to()):
        for given_secret in (secret, None):
            with pytest.raises(Unauthenticated):
                refused.authenticate(given_secret)
    told = [record for record in caplog.records if "nobody is let in" in record.getMessage()]
    assert len(told) == 2  # once by each
    assert all(record.levelno == logging.ERROR for record in told)
    assert secret not in caplog.text
    with pytest.raises(TokensDamaged):
        file.create("b", ["admin"])  # which would throw the others away
    file.path.write_bytes(whole)
    assert access.authenticate(secret) == principal


def test_a_file_that_cannot_be_opened_refuses_everybody(file: TokenFile, access_to: Callable[[], Access]) -> None:
    secret = file.create("a", ["admin"]).secret
    access = access_to()
    file.path.unlink()
    file.path.mkdir()
    with pytest.raises(Unauthenticated, match="cannot read its tokens"):
        access.authenticate(secret)


# Who is let in.


def test_without_auth_everybody_is_anybody(tmp_path: Path) -> None:
    access = Access(config_of(tmp_path))
    assert access.authenticate(None) is ANYBODY
    assert access.authenticate("whatever") is ANYBODY
    access.check(ANYBODY)


def test_a_secret_is_its_token_and_nothing_else_is(file: TokenFile, access_to: Callable[[], Access]) -> None:
    made, other = file.create("a", ["publish"], ["orders.*"]), file.create("b", ["admin"])
    access = access_to()
    assert access.authenticate(made.secret) == Principal("a", frozenset({Scope.PUBLISH}), ("orders.*",), made.token.id)
    (stored, _) = file.read()
    rest = made.secret.split("_", 2)[2]
    for wrong in (
        None,
        "",
        "pst_",
        made.secret[:-1],
        made.secret + "x",
        made.secret.upper(),
        f" {made.secret}",
        f"{made.secret}\n",
        f"pst_{other.token.id}_{rest}",  # somebody else's id
        f"pst_{made.token.id}_{stored.sha256[:43]}",
        stored.sha256,
        "a",
        made.token.id,
        "pst_\udc80",
        "ß" * 60,
        "x" * 1_000_000,
    ):
        with pytest.raises(Unauthenticated):
            access.authenticate(wrong)


@given(st.text())
def test_no_text_gets_in(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    access = Access(config_of(tmp_path_factory.getbasetemp() / "nothing", auth="tokens"))
    with pytest.raises(Unauthenticated):
        access.authenticate(text)


def test_a_token_made_beside_the_server_opens_at_once(file: TokenFile, tmp_path: Path) -> None:
    access = Access(config_of(tmp_path, auth="tokens"))
    assert access.authenticate(file.create("a", ["read"]).secret).name == "a"


def test_a_revoked_token_opens_nothing_and_ends_what_is_open(file: TokenFile, access_to: Callable[[], Access]) -> None:
    kept, gone = file.create("kept", ["read"]), file.create("gone", ["read"])
    access = access_to()
    principals = [access.authenticate(made.secret) for made in (kept, gone)]
    file.revoke("gone")
    access.check(principals[0])
    with pytest.raises(Unauthenticated, match="the token gone was revoked"):
        access.check(principals[1])
    with pytest.raises(Unauthenticated, match="unknown here, or was revoked"):
        access.authenticate(gone.secret)
    again = file.create("gone", ["read"])
    with pytest.raises(Unauthenticated):  # another token of the same name
        access.check(principals[1])
    assert access.authenticate(again.secret).name == "gone"


def test_a_token_whose_scopes_were_changed_by_hand_ends_what_is_open(
    file: TokenFile, access_to: Callable[[], Access]
) -> None:
    made = file.create("a", ["admin"])
    access = access_to()
    principal = access.authenticate(made.secret)
    file.path.write_bytes(changed(file, lambda found: found["tokens"][0].update(scopes=["read"])))
    with pytest.raises(Unauthenticated):
        access.check(principal)
    assert access.authenticate(made.secret).scopes == {Scope.READ}


def test_without_the_file_nobody_is_let_in_any_more(file: TokenFile, access_to: Callable[[], Access]) -> None:
    secret = file.create("a", ["admin"]).secret
    access = access_to()
    principal = access.authenticate(secret)
    file.path.unlink()
    with pytest.raises(Unauthenticated):
        access.check(principal)
    with pytest.raises(Unauthenticated):
        access.authenticate(secret)


def test_a_token_ends_when_it_expires(file: TokenFile, access_to: Callable[[], Access], clock: Clock) -> None:
    secret = file.create("a", ["read"], expires_in="1h").secret
    access = access_to()
    principal = access.authenticate(secret)
    clock.now_s += 3590
    access.check(principal)
    clock.now_s += 11
    for attempt in (lambda: access.check(principal), lambda: access.authenticate(secret)):
        with pytest.raises(Unauthenticated, match=r"the token a expired at 20\d\d-"):
            attempt()


def test_the_file_is_looked_at_once_a_second_at_most(
    file: TokenFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = file.create("a", ["read"]).secret
    monkeypatch.setattr(access_module, "_LOOK_S", 3600.0)
    access = Access(config_of(tmp_path, auth="tokens"))
    looks: list[int] = []
    monkeypatch.setattr(TokenFile, "signature", lambda _: looks.append(1))
    monkeypatch.setattr(TokenFile, "read", lambda _: looks.append(1))
    for _ in range(100):
        access.check(access.authenticate(secret))
    assert looks == []


def test_a_server_without_any_token_says_how_to_make_the_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Access(config_of(tmp_path, auth="tokens"))
    assert f"penstock token create admin --scope admin --dir {tmp_path}" in caplog.text


# What they may do.


def test_admin_includes_the_other_scopes_and_these_include_nothing() -> None:
    for scope in Scope:
        Principal("a", frozenset({Scope.ADMIN})).require(scope, "t")
        for other in set(Scope) - {scope}:
            if scope is not Scope.ADMIN:
                with pytest.raises(Forbidden, match=f"it takes the scope {other}, and it has {scope}"):
                    Principal("a", frozenset({scope})).require(other, "t")


@pytest.mark.parametrize(
    ("patterns", "topic", "seen"),
    [
        (("*",), "anything", True),
        (("orders",), "orders", True),
        (("orders",), "orders.dlq", True),
        (("orders",), "orders2", False),
        (("orders",), "Orders", False),
        (("orders",), "orders.dlq.dlq", False),
        (("orders.*",), "orders.eu", True),
        (("orders.*",), "orders", False),
        (("orders.*",), "orders.eu.dlq", True),
        (("a", "b?"), "b1", True),
        (("a", "b?"), "b12", False),
        (("a.b",), "axb", False),
    ],
)
def test_a_pattern_is_for_whole_names_and_their_dead_letters(patterns: tuple[str, ...], topic: str, seen: bool) -> None:
    assert Principal("p", frozenset(Scope), patterns).sees(topic) is seen


# Rates.


def test_a_client_may_send_the_requests_of_a_second_at_once_and_then_goes_on_at_the_rate() -> None:
    now = [100.0]
    limits = RateLimits(10, lambda: now[0])
    for _ in range(10):
        limits.take("a")
    with pytest.raises(RateLimited, match="more than 10 requests a second") as refused:
        limits.take("a")
    assert isinstance(refused.value, Overloaded)
    assert refused.value.retry_after_s == pytest.approx(0.1)
    limits.take("b")  # has its own
    now[0] += 0.1
    limits.take("a")
    with pytest.raises(RateLimited):
        limits.take("a")
    now[0] += 1000
    for _ in range(10):
        limits.take("a")
    with pytest.raises(RateLimited):
        limits.take("a")


def test_refused_requests_cost_nothing_of_the_rate() -> None:
    now = [0.0]
    limits = RateLimits(1, lambda: now[0])
    limits.take("a")
    for _ in range(100):
        with pytest.raises(RateLimited):
            limits.take("a")
    now[0] += 1.0
    limits.take("a")


def test_without_a_limit_everything_goes() -> None:
    limits = RateLimits(0)
    for _ in range(100):
        limits.take("a")
    assert not limits._full_s


def test_any_number_of_clients_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "_KEYS_MAX", 100)
    limits = RateLimits(5, lambda: 0.0)  # no time passes, so that no bucket is full again
    limits.take("the first")
    for number in range(1000):
        for _ in range(5):
            limits.take(f"client {number}")
        with pytest.raises(RateLimited):
            limits.take(f"client {number}")
        assert len(limits._full_s) <= 100


def test_requests_are_counted_by_token_or_by_address() -> None:
    token = Principal("shop", frozenset({Scope.READ}), ("*",), "0123456789ab")
    assert rate_key(token, "10.0.0.1") == rate_key(token, "10.0.0.2")
    assert rate_key(ANYBODY, "10.0.0.1") != rate_key(ANYBODY, "10.0.0.2")
    assert rate_key(ANYBODY, "2001:db8::1") == rate_key(ANYBODY, "2001:db8::ffff:1")  # one network of one client
    assert rate_key(ANYBODY, "2001:db8::1") != rate_key(ANYBODY, "2001:db8:0:1::1")
    assert rate_key(ANYBODY, "?") == "?"
