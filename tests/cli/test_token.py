"""`penstock token`, on a directory and on a server, and the options with which commands reach a secured one."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from tests.cli.harness import Command
from tests.server.certificates import Certificates, make_certificates
from tests.server.harness import Running


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def on_disk(data: Path) -> Command:
    return Command({"PENSTOCK_DIR": str(data)}, lambda: None)


@pytest.fixture
def secured(data: Path, on_disk: Command) -> Iterator[Command]:
    """The command line with an admin's token on a server that asks for tokens."""
    secret = on_disk.ok("token", "create", "admin", "--scope", "admin").strip()
    with Running(data, auth="tokens") as server:
        yield Command({"PENSTOCK_SERVER": server.address, "PENSTOCK_TOKEN": secret}, lambda: None)


@pytest.fixture(params=["directory", "server"])
def command(request: pytest.FixtureRequest) -> Command:
    if request.param == "directory":
        on_disk: Command = request.getfixturevalue("on_disk")
        on_disk.ok("token", "create", "admin", "--scope", "admin")
        return on_disk
    secured: Command = request.getfixturevalue("secured")
    return secured


def test_a_token_is_made_listed_and_revoked(command: Command) -> None:
    arguments = ("--scope", "publish", "-s", "read", "--topic", "orders.*", "-t", "x", "--expires", "30d")
    made = json.loads(command.ok("token", "create", "shop", *arguments, "-o", "json"))
    assert made["secret"].startswith(f"pst_{made['id']}_")
    assert (made["name"], made["scopes"], made["topics"]) == ("shop", ["publish", "read"], ["orders.*", "x"])
    listed = json.loads(command.ok("token", "list", "-o", "json"))
    assert [token["name"] for token in listed] == ["admin", "shop"]
    assert listed[1] == {name: value for name, value in made.items() if name != "secret"}
    table = command.ok("token", "list")
    assert "publish, read" in table
    assert made["secret"] not in table
    assert command.ok("token", "revoke", "shop") == f"shop ({made['id']}) is revoked\n"
    assert "shop" not in command.ok("token", "list")


def test_the_secret_is_all_that_is_printed_so_that_a_shell_can_take_it(command: Command) -> None:
    done = command("token", "create", "me", "--scope", "read")
    assert done.out.startswith("pst_")
    assert len(done.out.splitlines()) == 1
    assert "cannot be shown again" in done.err


def test_what_is_wrong_is_told_in_one_line(command: Command) -> None:
    assert "say what the token is for" in command.refused("token", "create", "x", code=2)
    assert "'root' is not a scope" in command.refused("token", "create", "x", "--scope", "root", code=2)
    assert "is not a pattern" in command.refused("token", "create", "x", "-s", "read", "-t", "a/b", code=2)
    assert "already" in command.refused("token", "create", "admin", "--scope", "read", code=2)
    assert "there is no token 'x'" in command.refused("token", "revoke", "x", code=2)
    assert "soon" in command.refused("token", "create", "x", "-s", "read", "--expires", "soon", code=2)


def test_tokens_may_be_the_first_thing_in_a_directory(on_disk: Command, data: Path) -> None:
    assert "is not a directory" in on_disk.refused("token", "list", code=2)
    on_disk.ok("token", "create", "admin", "--scope", "admin")
    assert stat.S_IMODE((data / "tokens.json").stat().st_mode) == 0o600
    on_disk.ok("token", "revoke", "admin")
    assert on_disk.ok("token", "list") == "there are no tokens\n"
    with penstock.open(data) as broker:
        broker.publish("t", "x")
    assert on_disk.ok("token", "list") == "there are no tokens\n"


def test_a_damaged_file_is_told_and_left_alone(on_disk: Command, data: Path) -> None:
    on_disk.ok("token", "create", "admin", "--scope", "admin")
    (data / "tokens.json").write_text("{")
    for arguments in (("list",), ("create", "x", "-s", "read"), ("revoke", "admin")):
        assert "is not a file of tokens" in on_disk.refused("token", *arguments)
    assert (data / "tokens.json").read_text() == "{"


def test_commands_are_refused_in_one_line_without_a_token_or_with_another(secured: Command) -> None:
    without = Command({**secured.environment, "PENSTOCK_TOKEN": ""}, lambda: None)
    assert "asks for a token" in without.refused("status")
    assert "PENSTOCK_TOKEN" in without.refused("publish", "orders", "x")
    assert "is not valid" in without.refused("topic", "list", "--token", f"pst_{'0' * 12}_{'x' * 43}")
    shop = secured.ok("token", "create", "shop", "--scope", "publish", "--topic", "orders").strip()
    limited = Command({**secured.environment, "PENSTOCK_TOKEN": shop}, lambda: None)
    assert limited.ok("publish", "orders", "x") == "orders/0/0\n"
    assert "may not use the topic 'other'" in limited.refused("publish", "other", "x")
    assert "it takes the scope read" in limited.refused("topic", "list")
    assert "it takes the scope admin" in limited.refused("token", "list")


def test_a_server_that_asks_for_no_token_makes_none(tmp_path: Path) -> None:
    with Running(tmp_path) as server:
        command = Command({"PENSTOCK_SERVER": server.address}, lambda: None)
        assert "use `penstock token` with --dir" in command.refused("token", "create", "x", "--scope", "admin")


def test_commands_reach_a_server_by_tls(tmp_path: Path) -> None:
    made: Certificates = make_certificates(tmp_path / "certificates")
    files: dict[str, Any] = {"tls_cert": str(made.server), "tls_key": str(made.server_key)}
    files["tls_client_ca"] = str(made.ca)
    with Running(tmp_path / "data", **files) as server:
        command = Command({"PENSTOCK_SERVER": server.address}, lambda: None)
        shown = ("--ca", made.ca, "--cert", made.client, "--cert-key", made.client_key)
        assert command.ok("publish", "orders", "x", *shown) == "orders/0/0\n"
        by_variables = Command(
            {
                **command.environment,
                "PENSTOCK_TLS": "1",
                "PENSTOCK_CA": str(made.ca),
                "PENSTOCK_CERT": str(made.client),
                "PENSTOCK_KEY": str(made.client_key),
            },
            lambda: None,
        )
        assert "orders" in by_variables.ok("topic", "list")
        for wrong in ((), ("--tls",), ("--ca", made.ca), ("--ca", made.stranger)):
            said = command.refused("topic", "list", *wrong, code=3)
            assert "(hint: see --tls, --ca, and --cert with --cert-key)" in said, said
            if not wrong:
                assert "give tls or ca" in said
            if wrong == ("--ca", made.ca):
                assert "certificate" in said and "give cert and its key" in said
        assert "cannot be read" in command.refused("topic", "list", "--ca", "nowhere", code=2)


def test_a_token_that_is_only_for_receiving_is_enough_for_a_group(secured: Command) -> None:
    secured.ok("publish", "orders", "one")
    secret = secured.ok("token", "create", "kitchen", "--scope", "consume", "--topic", "orders").strip()
    kitchen = Command({**secured.environment, "PENSTOCK_TOKEN": secret}, lambda: None)
    assert kitchen.ok("consume", "orders", "--group", "kitchen", "--no-ack", "-o", "raw") == "one\n"
    assert kitchen.ok("consume", "orders", "--group", "kitchen", "-o", "raw") == "one\n"
    assert kitchen.ok("consume", "orders", "--group", "again", "--from-offset", 0, "-o", "raw") == "one\n"
    assert "the scope read" in kitchen.refused("consume", "orders")
    assert "there is no topic 'order'" in secured.refused("consume", "order", "--group", "kitchen")
