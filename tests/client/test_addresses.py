"""Addresses of servers: one, or several with commas between them, which are tried in turn."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock
from penstock.client.addresses import Addresses
from penstock.model.errors import ConnectionLost, InvalidArgument, Unauthenticated
from tests.server.harness import Running, free_port


def test_several_addresses_have_commas_between_them() -> None:
    addresses = Addresses("a:1, b ,:3,[::1]:4,a:1")
    assert addresses.in_turn() == [("a", 1), ("b", 9000), ("127.0.0.1", 3), ("::1", 4)]
    assert (len(addresses), str(addresses)) == (4, "a:1, b:9000, 127.0.0.1:3, ::1:4")


@pytest.mark.parametrize("given", ["a:1,,b:2", ",", "a:1,b:x", "a:1 b:2", ",".join(f"a:{n}" for n in range(1, 102))])
def test_what_is_no_list_of_addresses_is_refused(given: str) -> None:
    with pytest.raises(InvalidArgument, match=r"give 'host:9000'|give at most 100"):
        penstock.connect(given)


def test_the_one_that_was_lost_is_tried_last() -> None:
    addresses = Addresses("a:1,b:2,c:3")
    addresses.turn_to(("b", 2))
    assert addresses.in_turn() == [("c", 3), ("a", 1), ("b", 2)]


def test_those_that_were_told_are_tried_when_none_that_was_given_answers() -> None:
    addresses = Addresses("a:1,b:2")
    addresses.learn(["d:4", "b:2", "c:3"])
    addresses.turn_to(("d", 4))
    assert addresses.in_turn() == [("a", 1), ("b", 2), ("c", 3), ("d", 4)]
    addresses.learn(["e:5"])
    assert addresses.in_turn() == [("a", 1), ("b", 2), ("e", 5)]


def test_a_client_uses_the_first_address_that_answers(tmp_path: Path) -> None:
    with Running(tmp_path) as server, penstock.connect(f"127.0.0.1:{free_port()},{server.address}") as client:
        assert client.publish("t", "x").offset == 0
        assert client.link.address == server.address


def test_where_nobody_answers_all_addresses_are_named() -> None:
    first, second = (f"127.0.0.1:{free_port()}" for _ in range(2))
    with pytest.raises(ConnectionLost) as told:
        penstock.connect(f"{first},{second}")
    assert str(told.value).startswith(f"no Penstock server answers at any of {first}, {second}: ")
    assert str(told.value).count("refused") == 2


def test_a_server_that_refuses_the_token_is_not_passed_over(tmp_path: Path) -> None:
    with Running(tmp_path, auth="tokens") as server, pytest.raises(Unauthenticated):
        penstock.connect(f"{server.address},127.0.0.1:{free_port()}", token="pst_wrong")
