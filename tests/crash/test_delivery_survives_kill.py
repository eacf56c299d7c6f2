"""`kill -9` of a process that consumes, again and again, while somebody keeps the list of what was confirmed."""

from __future__ import annotations

import random
import subprocess
from collections import Counter
from pathlib import Path
from time import monotonic

import pytest

import penstock
from tests.sharding import ROOT, command

CONSUMER = """
import sys, threading, penstock
broker = penstock.open(sys.argv[1], journal_file_bytes="256KiB", segment_min_bytes="32KiB")
outside = threading.Lock()

def say(word, messages):
    lines = "".join(f"{word} {message.partition}/{message.offset}\\n" for message in messages)
    with outside:
        sys.stdout.write(lines)
        sys.stdout.flush()

def work(number):
    consumer = broker.consumer("work", "crew")
    while True:
        for message in consumer.receive(20, wait=1):
            fate = message.offset % 10
            if fate == 3:
                message.kill("it can never be done")
                say("dead", [message])
            elif fate == 5 and message.deliveries == 1:
                message.fail("once more", delay=0)
                say("failed", [message])
            elif fate == 7 and message.deliveries == 1:
                message.release()
            else:
                message.ack()
                say("acked", [message])

def keep_house():
    while True:
        broker.settle()

threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(4)]
threads.append(threading.Thread(target=keep_house, daemon=True))
for thread in threads:
    thread.start()
threads[0].join()
"""

REDRIVER = """
import sys, penstock
broker = penstock.open(sys.argv[1])
print("begun 0", flush=True)
for number in range(10**9):
    report = broker.redrive("work", filter=lambda letter: letter.origin.offset % 100 == number % 100)
    print("redriven", report.redriven, flush=True)
"""

DELAYER = """
import sys, penstock
broker = penstock.open(sys.argv[1])
run = sys.argv[2]
for number in range(10**9):
    identity = broker.publish("later", f"{run}.{number}", delay=1000 if number % 2 else 1)
    print("published", identity, flush=True)
    if number % 4 == 1:
        assert broker.cancel_delayed(identity)
        print("cancelled", identity, flush=True)
    elif number % 4 == 3:
        assert broker.reschedule_delayed(identity, delay=1)
        print("rescheduled", identity, flush=True)
"""


def run_until_killed(program: str, lines: int, *arguments: str) -> list[tuple[str, str]]:
    """Start a process, kill it after so many lines; everything that it managed to say."""
    child = subprocess.Popen(
        command(program, *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, text=True
    )
    assert child.stdout is not None
    assert child.stderr is not None
    said: list[str] = []
    for line in child.stdout:
        said.append(line)
        if len(said) == lines:
            child.kill()
    errors = child.stderr.read()
    child.stdout.close()
    child.stderr.close()
    child.wait()
    assert child.returncode == -9, errors
    whole = [line.split() for line in said if line.endswith("\n")]
    return [(word, rest) for word, rest in whole]


def fill(path: Path, count: int) -> None:
    with penstock.open(path) as broker:
        broker.create_topic("work", partitions=2, max_deliveries=5, retention_age=None)
        broker.publish_many("work", [f"{number}" for number in range(count)])


@pytest.mark.crash
def test_Q2_Q7_Q10_nothing_confirmed_comes_again_and_nothing_is_lost_after_kills(tmp_path: Path) -> None:
    chance = random.Random(11)
    fill(tmp_path, 6000)
    confirmed: dict[str, str] = {}
    for _ in range(6):
        for word, place in run_until_killed(CONSUMER, chance.randrange(1, 500), str(tmp_path)):
            if word != "failed":
                assert place not in confirmed, f"{place} was {confirmed[place]}, and came again"
                confirmed[place] = word
    assert len(confirmed) > 500
    with penstock.open(tmp_path) as broker:
        letters = Counter(f"{o.origin.partition}/{o.origin.offset}" for o in broker.dead_letters("work"))
        assert set(letters.values()) == {1}, "Q7: somebody died twice"
        assert {place for place, word in confirmed.items() if word == "dead"} <= set(letters)
        info = broker.group("work", "crew")
        assert info.published == 6000 == info.acked + info.ready + info.retrying + info.dead
        assert info.dead == len(letters)
        left: list[str] = []
        with broker.consumer("work", "crew", max_in_flight=10_000) as consumer:
            while received := consumer.receive(1000, wait=0.5):
                for message in received:
                    assert message.failures < message.deliveries
                    left.append(f"{message.partition}/{message.offset}")
                consumer.ack(received)
        assert len(left) == len(set(left)) == info.ready + info.retrying
        assert not set(left) & (set(confirmed) | set(letters)), "what was confirmed came again"
        unknown = 6000 - len(set(left) | set(confirmed) | set(letters))
        assert 0 <= unknown <= 6 * 4, "Q2: only what each of 4 threads had under way may be done and not confirmed"
        assert broker.group("work", "crew").lag == 0


@pytest.mark.crash
def test_Q8_a_redrive_that_is_killed_in_the_middle_moves_each_message_once(tmp_path: Path) -> None:
    chance = random.Random(12)
    fill(tmp_path, 4000)
    with penstock.open(tmp_path) as broker, broker.consumer("work", "crew", max_in_flight=4000) as consumer:
        while received := consumer.receive(1000):
            consumer.kill(received, "for now")
        assert broker.group("work", "crew").dead == 4000
    for _ in range(5):
        run_until_killed(REDRIVER, chance.randrange(2, 25), str(tmp_path))
        with penstock.open(tmp_path) as broker:
            dead = {letter.origin for letter in broker.dead_letters("work")}
            info = broker.group("work", "crew")
            assert len(dead) == info.dead
            assert info.published == 4000 == info.dead + info.ready
    assert 0 < len(dead) < 4000
    with penstock.open(tmp_path) as broker, broker.consumer("work", "crew", max_in_flight=4000) as consumer:
        live = [message.id for message in consumer.receive(4000)]
    assert len(live) == len(set(live)) == 4000 - len(dead)
    assert not set(live) & dead


@pytest.mark.crash
def test_T3_T4_delays_survive_kills_and_what_was_cancelled_never_comes(tmp_path: Path) -> None:
    chance = random.Random(13)
    said: dict[str, str] = {}
    for run in range(4):
        lines = run_until_killed(DELAYER, chance.randrange(20, 200), str(tmp_path), str(run))
        said |= {identity: word for word, identity in lines}
    with penstock.open(tmp_path) as broker:
        stored = {str(message.id): int(message.value.split(b".")[1]) for message in broker.read("later")}
        due = {i for i, n in stored.items() if n % 2 == 0 or said.get(i) == "rescheduled"}
        cancelled = {i for i, word in said.items() if word == "cancelled"}
        assert cancelled
        assert set(said) <= set(stored)
        came: list[str] = []
        deadline = monotonic() + 30
        with broker.consumer("later", "g") as consumer:
            while monotonic() < deadline and not due <= set(came):
                received = consumer.receive(1000, wait=1)
                assert all(message.deliveries == 1 for message in received)
                came += [str(message.id) for message in received]
                consumer.ack(received)
        assert due <= set(came), "T3: what is past due fires"
        assert len(came) == len(set(came)), "T3: and once"
        assert not cancelled & set(came), "T4"
        last = {i for i in stored if i not in due and i not in cancelled}
        waiting = {str(delayed.id) for delayed in broker.delayed("later")}
        assert waiting <= last
        assert last - waiting <= set(came) | {i for i in last if said.get(i) != "published" or stored[i] % 4 != 0}
