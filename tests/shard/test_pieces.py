"""What is kept encoded for the next checkpoint: it says what the state says, whatever was changed in between."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from types import ModuleType

import msgspec
import pytest

from penstock.log import dedupe, producers
from penstock.log.dedupe import DedupeWindow
from penstock.log.producers import ProducerHistories
from penstock.model.message import IdRun

_SECOND_US = 1_000_000


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dedupe, "_RUN", 7)
    monkeypatch.setattr(producers, "_STRETCH_SEQUENCES", 9)


def decoded(pieces: list[bytes]) -> list[tuple[object, ...]]:
    return [tuple(entry) for entry in msgspec.msgpack.decode(b"".join(pieces))]


def entries(histories: ProducerHistories) -> list[tuple[object, ...]]:
    return [(producer, sequence, list(run)) for producer, sequence, run in histories.entries()]


def some_steps(steps: Iterator[None], count: int) -> None:
    assert len(list(itertools.islice(steps, count))) <= count


def watch(monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> list[str]:
    """Whose entries a module encodes from now on."""
    encoded: list[str] = []

    def watched(entry: tuple[str, object]) -> bytes:
        encoded.append(entry[0])
        return msgspec.msgpack.encode(entry)

    monkeypatch.setattr(module, "_encode", watched)
    return encoded


@pytest.mark.parametrize("seed", range(20))
def test_encoded_producers_are_what_is_remembered(seed: int) -> None:
    choose = random.Random(seed)
    histories = ProducerHistories()
    for turn in range(300):
        producer = f"p{choose.randrange(40)}"
        if choose.random() < 0.5:
            histories.remember(producer, turn, IdRun(choose.randrange(2), turn, 5))
        else:
            histories.remember_singles(producer, turn * 10, 0, turn, choose.randrange(1, 4))
        if choose.random() < 0.1:
            histories.keep_to(choose.randrange(20, 40))
        if choose.random() < 0.2:
            some_steps(histories.encode_changed(), choose.randrange(4))
        if choose.random() < 0.2:
            assert decoded(histories.encoded()) == entries(histories)
    assert decoded(histories.encoded()) == entries(histories)


def test_producers_that_are_silent_are_not_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    histories = ProducerHistories()
    for number in range(100):
        histories.remember(f"p{number}", 1, IdRun(0, number, 1))
    histories.encoded()
    encoded = watch(monkeypatch, producers)
    for number in (3, 97):
        histories.remember(f"p{number}", 2, IdRun(0, 100 + number, 1))
    assert decoded(histories.encoded()) == entries(histories)
    assert encoded == ["p3", "p3", "p97", "p97"]


@pytest.mark.parametrize("seed", range(20))
def test_encoded_dedupe_ids_are_those_inside_the_window(seed: int) -> None:
    choose = random.Random(seed)
    window = DedupeWindow(60)
    now_us = 1000 * _SECOND_US
    for offset in range(400):
        now_us += choose.randrange(-1 if seed % 2 else 0, 2) * _SECOND_US
        identity = f"d{choose.randrange(200)}"
        if window.find(identity, now_us) is None and window.has_room(50, now_us):
            window.remember(identity, 0, offset, now_us)
        if choose.random() < 0.1:
            some_steps(window.encode_changed(), choose.randrange(4))
        if choose.random() < 0.1:
            restored = DedupeWindow(60)
            for seen in decoded(window.encoded()):
                restored.remember(*seen)  # type: ignore[arg-type]
            for number in range(200):
                assert restored.find(f"d{number}", now_us) == window.find(f"d{number}", now_us)


def test_dedupe_ids_that_were_encoded_are_not_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    window = DedupeWindow(60)
    for number in range(70):
        window.remember(f"d{number}", 0, number, number)
    window.encoded()
    encoded = watch(monkeypatch, dedupe)
    for number in range(70, 75):
        window.remember(f"d{number}", 0, number, number)
    assert decoded(window.encoded()) == list(window.entries())
    assert encoded == ["d70", "d71", "d72", "d73", "d74"]


def test_dedupe_ids_leave_the_window_in_their_order_and_make_room() -> None:
    window = DedupeWindow(60)
    for number in range(30):
        window.remember(f"d{number}", 0, number, number * _SECOND_US)
        window.find("nobody", number * _SECOND_US)
    assert window.find("d9", 70 * _SECOND_US) is None
    assert [entry[0] for entry in window.entries()] == [f"d{number}" for number in range(11, 30)]
    assert not window.has_room(19, 70 * _SECOND_US)
    assert window.has_room(20, 70 * _SECOND_US)


def test_an_id_of_a_wrong_clock_takes_the_room_of_nobody_for_long() -> None:
    window = DedupeWindow(60)
    window.remember("wrong", 0, 0, 10_000 * _SECOND_US)
    for number in range(1, 10):
        window.remember(f"d{number}", 0, number, number * _SECOND_US)
    assert not window.has_room(10, 50 * _SECOND_US)
    assert window.has_room(10, 65 * _SECOND_US)
    assert [entry[0] for entry in window.entries()] == ["d6", "d7", "d8", "d9", "wrong"]
