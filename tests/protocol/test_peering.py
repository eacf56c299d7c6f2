"""The greeting of members, line by line: who knows the secret is let in, and nobody else."""

from __future__ import annotations

import pytest

from penstock.protocol.peering import PREFIX, Greeting, Introduction, PeerRefused, refusal

_SECRET = b"secret"


def greeting(secret: bytes = _SECRET, nonce: str = "0" * 32, channel: bytes = b"") -> Greeting:
    return Greeting(secret, 7, ("native", "http"), nonce, channel)


def introduction(
    secret: bytes = _SECRET, port: str = "http", member: int = 7, nonce: str = "1" * 32, channel: bytes = b""
) -> Introduction:
    return Introduction(secret, port, member, nonce, channel)


def meet(server: Greeting, client: Introduction) -> list[bytes]:
    """All that is said."""
    said = [client.first()]
    while said[-1]:
        side = server if len(said) % 2 else client
        said.append(side.answer(said[-1].removesuffix(b"\n")))
    return said


def test_both_who_know_the_secret_meet() -> None:
    server, client = greeting(), introduction()
    said = meet(server, client)
    assert (server.port, client.is_welcome, len(said)) == ("http", True, 5)
    assert all(line.startswith(PREFIX) and line.endswith(b"\n") and len(line) < 256 for line in said[:-1])
    assert b"secret" not in b"".join(said)


def test_whoever_answers_has_to_prove_it_first() -> None:
    with pytest.raises(PeerRefused, match="does not know the secret of this cluster"):
        meet(greeting(b"another"), introduction())


def test_whoever_asks_has_to_prove_it() -> None:
    server = greeting()
    server.answer(introduction().first().removesuffix(b"\n"))
    with pytest.raises(PeerRefused, match="the proof is wrong"):
        server.answer(PREFIX + b"0" * 64)
    assert server.port is None


@pytest.mark.parametrize("other", [greeting(nonce="2" * 32), greeting(channel=b"another")])
def test_a_proof_is_good_for_one_connection(other: Greeting) -> None:
    said = [line.removesuffix(b"\n") for line in meet(greeting(), introduction())]
    other.answer(said[0])
    with pytest.raises(PeerRefused, match="the proof is wrong"):
        other.answer(said[2])
    assert other.port is None


def test_what_a_server_has_proven_is_no_proof_of_a_client() -> None:
    first, other = introduction().first().removesuffix(b"\n"), greeting()
    proof = greeting().answer(first).split()[-1]
    other.answer(first)
    with pytest.raises(PeerRefused, match="the proof is wrong"):
        other.answer(PREFIX + proof)


def test_nobody_in_the_middle_can_pass_a_proof_on_to_another_encrypted_connection() -> None:
    with pytest.raises(PeerRefused, match="does not know the secret"):
        meet(greeting(channel=b"from the middle to the server"), introduction(channel=b"from the client to the middle"))


@pytest.mark.parametrize(
    ("client", "told"),
    [
        (introduction(member=8), "this is member 7, not 8"),
        (introduction(port="line"), "no port called line: it has http, native"),
        (introduction(port="../x"), "names a port, the number of a member and a nonce"),
        (introduction(nonce="x"), "names a port, the number of a member and a nonce"),
    ],
)
def test_a_member_tells_whom_it_is_not_for(client: Introduction, told: str) -> None:
    with pytest.raises(PeerRefused, match=told):
        meet(greeting(), client)


@pytest.mark.parametrize("heard", [b"GARBAGE", PREFIX + b"welcome", PREFIX, b"", PREFIX + b"0" * 97])
def test_what_is_no_answer_is_refused(heard: bytes) -> None:
    client = introduction()
    client.first()
    with pytest.raises(PeerRefused):
        client.answer(heard)
    assert not client.is_welcome


def test_who_is_refused_hears_why() -> None:
    client = introduction()
    client.first()
    with pytest.raises(PeerRefused, match="this is member 9"):
        client.answer(refusal(PeerRefused("this is member 9, not 7")).removesuffix(b"\n"))
