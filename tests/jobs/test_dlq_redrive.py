"""`dlq-redrive`: dead letters come back by SQL, each once, with another value if asked; and it is verified."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.client import Client
from penstock.model.errors import ConnectionLost, InvalidArgument, StorageFailed, TopicNotFound
from penstock.model.letters import DeadLetter
from penstock.spark.jobs.dlq_redriving import dlq_redrive
from penstock.spark.jobs.place import Place
from tests.cli.harness import PENSTOCK
from tests.jobs.letters_harness import die
from tests.server.harness import free_port, until
from tests.spark.harness import Served

FRENCH = "get_json_object(CAST(value AS STRING), '$.customer.country') = 'fr'"
LATE = '{"customer": {"country": "fr"}}'
LOUD = "replace(CAST(value AS STRING), 'fr', 'FR')"


@pytest.fixture
def place(server: Served) -> Place:
    return Place(servers=server.address)


def ids(letters: list[DeadLetter]) -> set[str]:
    return {str(letter.id) for letter in letters}


def copied(client: Client, topic: str) -> list[tuple[str, bytes | None, bytes, dict[str, str], int]]:
    """Messages of a topic that are copies of others: origin, key, value, own headers, priority; in order of origins."""
    found = []
    for message in client.read(topic):
        headers = dict(message.headers or {})
        if origin := headers.pop("penstock-origin", None):
            found.append((origin, message.key, message.value, headers, message.priority))
    return sorted(found, key=lambda copy: copy[0])


def wanted(letters: list[DeadLetter]) -> list[tuple[str, bytes | None, bytes, dict[str, str], int]]:
    """What takes the place of letters."""
    return sorted(
        (
            (str(dead.origin), dead.key, dead.value.replace(b"fr", b"FR"), dict(dead.headers or {}), dead.priority)
            for dead in letters
        ),
        key=lambda copy: copy[0],
    )


def received(client: Client, topic: str, group: str, count: int) -> list[str]:
    """The ids of the next messages of a group, which it acks."""
    found: list[str] = []
    with client.consumer(topic, group, max_in_flight=10_000) as consumer:
        while len(found) < count:
            for message in consumer.receive(max_messages=count - len(found), wait="10s"):
                found.append(str(message.id))
                message.ack()
        assert not consumer.receive(max_messages=1, wait=0)
    return found


def test_what_sql_chooses_comes_back_to_its_group_at_its_place(
    spark: SparkSession, server: Served, place: Place
) -> None:
    client = server.client
    die(server, "t", 40)
    before = client.dead_letters("t")
    chosen = [letter for letter in before if letter.cause.startswith("timeout") and letter.key == b"k1"]
    where = "cause LIKE 'timeout%' AND CAST(key AS STRING) = 'k1' AND group = 'workers' AND failures = 0"
    dry = dlq_redrive(spark, place, "t", where=where, dry_run=True)
    assert dry.dry_run
    assert dry.summary == {"topic": "t", "to": "t", "chosen": len(chosen)}
    assert ids(client.dead_letters("t")) == ids(before)
    outcome = dlq_redrive(spark, place, "t.dlq", where=where)
    assert outcome.whole
    assert outcome.notes == ()
    assert outcome.summary == {"topic": "t", "to": "t", "chosen": len(chosen), "back": len(chosen), "left": 0}
    assert outcome.rows == [("workers", len(chosen), len(chosen), 0)]
    assert ids(client.dead_letters("t")) == ids(before) - ids(chosen)
    assert sorted(received(client, "t", "workers", len(chosen))) == sorted(str(letter.origin) for letter in chosen)
    again = dlq_redrive(spark, place, "t", where=where)
    assert again.whole
    assert (again.summary["chosen"], again.notes) == (0, ("no dead letter of t is chosen",))


def test_they_go_to_another_topic_as_copies(spark: SparkSession, server: Served, place: Place) -> None:
    client = server.client
    die(server, "t", 20)
    letters = client.dead_letters("t")
    outcome = dlq_redrive(spark, place, "t", to="by-hand")
    assert outcome.whole
    assert outcome.summary == {"topic": "t", "to": "by-hand", "chosen": 20, "back": 20, "left": 0}
    assert [copy[0] for copy in copied(client, "by-hand")] == sorted(str(letter.origin) for letter in letters)
    assert client.dead_letters("t") == []


def test_Q8_a_redrive_whose_answer_is_lost_moves_each_letter_once_when_run_again(
    spark: SparkSession, server: Served, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.client.sync_administration._REDRIVEN_AT_ONCE", 4)
    client = server.client
    die(server, "t", 20)
    letters = client.dead_letters("t")
    whole = Client.redrive_steps

    def lose(self: Client, *given: Any) -> Iterator[Any]:
        for number, step in enumerate(whole(self, *given)):
            if number == 2:
                raise ConnectionLost("the answer is lost")
            yield step

    monkeypatch.setattr(Client, "redrive_steps", lose)
    with pytest.raises(ConnectionLost):
        dlq_redrive(spark, place, "t")
    monkeypatch.setattr(Client, "redrive_steps", whole)
    outcome = dlq_redrive(spark, place, "t")
    assert outcome.whole
    assert outcome.summary["back"] == outcome.summary["chosen"] == 8
    assert sorted(received(client, "t", "workers", 20)) == sorted(str(letter.origin) for letter in letters)


def test_a_rewrite_that_fails_between_publishing_and_purging_does_nothing_twice_when_run_again(
    spark: SparkSession, server: Served, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.spark.jobs.dlq_redriving._AT_ONCE", 3)
    client = server.client
    die(server, "t", 40)
    before = client.dead_letters("t")
    french = [letter for letter in before if b"fr" in letter.value]
    purge, calls = Client.purge_chosen, []

    def fail(self: Client, topic: str, ids: list[str] | None) -> int:
        calls.append(ids)
        if len(calls) == 2:
            raise StorageFailed("killed here")
        return purge(self, topic, ids)

    monkeypatch.setattr(Client, "purge_chosen", fail)
    with pytest.raises(StorageFailed):
        dlq_redrive(spark, place, "t", where=FRENCH, value=LOUD)
    assert len(copied(client, "t")) == 6
    assert len(client.dead_letters("t")) == len(before) - 3
    client.publish(
        "t.dlq", '{"customer": {"country": "fr"}}'
    )  # a letter that came meanwhile is not taken for one before
    outcome = dlq_redrive(spark, place, "t", where=FRENCH, value=LOUD)
    assert outcome.whole, outcome.notes
    assert outcome.summary["back"] == outcome.summary["chosen"] == len(french) - 3 + 1
    assert [
        copy for copy in copied(client, "t") if copy[1:] != (None, b'{"customer": {"country": "FR"}}', {}, 128)
    ] == wanted(french)
    assert len(copied(client, "t")) == len(french) + 1
    assert ids(client.dead_letters("t")) == ids(before) - ids(french)
    for message in client.read("t"):  # those without a key are where their originals were
        if message.headers and "penstock-origin" in message.headers and message.key is None:
            assert message.partition == int(message.headers["penstock-origin"].split("/")[1])


@pytest.mark.crash
def test_Q8_a_redrive_with_a_rewrite_that_is_killed_moves_each_letter_once(
    spark: SparkSession, server: Served, place: Place
) -> None:
    client = server.client
    die(server, "t", 90)
    before = client.dead_letters("t")
    french = [letter for letter in before if b"fr" in letter.value]
    words = ["job", "dlq-redrive", "t", "--where", FRENCH, "--value", LOUD, "--rate", "4"]
    with subprocess.Popen([PENSTOCK, *words, "--server", server.address], start_new_session=True) as process:
        until(lambda: copied(client, "t"), "a first turn", 300)
        os.killpg(process.pid, signal.SIGKILL)
    assert 0 < len(copied(client, "t")) < len(french)
    outcome = dlq_redrive(spark, place, "t", where=FRENCH, value=LOUD)
    assert outcome.whole, outcome.notes
    assert copied(client, "t") == wanted(french)
    assert ids(client.dead_letters("t")) == ids(before) - ids(french)


def test_what_is_not_back_is_told(
    spark: SparkSession, server: Served, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = server.client
    die(server, "t", 10)
    some = sorted(ids(client.dead_letters("t")))[:4]
    whole = Client.redrive_steps

    def others(self: Client, topic: str, ids: list[str], *rest: Any) -> Iterator[Any]:
        self.purge_chosen(topic, some[:3])  # somebody else, between choosing and redriving
        return whole(self, topic, [identity for identity in ids if identity != some[3]], *rest)

    monkeypatch.setattr(Client, "redrive_steps", others)
    outcome = dlq_redrive(spark, place, "t", rate=1000)
    assert not outcome.whole
    assert outcome.summary == {"topic": "t", "to": "t", "chosen": 10, "back": 6, "left": 1}
    assert [note.split(" ")[0] for note in outcome.notes] == ["1", "4", "3"]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"where": "nothing = 1"}, InvalidArgument, "nothing"),
        ({"where": "cause = ("}, InvalidArgument, "yntax error"),
        ({"where": "died_at < now()"}, InvalidArgument, "the time at which it runs"),
        ({"value": "uuid()"}, InvalidArgument, "chance"),
        ({"value": "failures"}, InvalidArgument, "the SQL gives INT, and a value is STRING or BINARY"),
        ({"value": "get_json_object(CAST(value AS STRING), '$.x')"}, InvalidArgument, "NULL for 5 of 5 dead letters"),
        ({"to": "t.dlq"}, InvalidArgument, "in t.dlq already"),
        ({"to": "a b"}, InvalidArgument, "not a topic name"),
        ({"rate": 0}, InvalidArgument, "not a rate"),
        ({"topic": "nobody"}, TopicNotFound, "nobody"),
        ({"place": Place(path="/")}, InvalidArgument, "redriving needs a server"),
        ({"place": Place(servers=f"127.0.0.1:{free_port()}")}, ConnectionLost, "127.0.0.1"),
    ],
)
def test_what_is_wrong_is_told_and_every_letter_stays(
    spark: SparkSession, server: Served, place: Place, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    die(server, "t", 5)
    with pytest.raises(error, match=text):
        dlq_redrive(spark, options.pop("place", place), options.pop("topic", "t"), **options)
    assert len(server.client.dead_letters("t")) == 5
    assert {info.name for info in server.client.topics()} == {"t", "t.dlq"}
