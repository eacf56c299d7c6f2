"""The page of processes: how each is, where the shards are, and moving them, on a server of two processes."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Locator, Route, expect

from penstock.client import Client
from penstock.model.processes import ClusterInfo
from penstock.server.access.tokens import TokenFile
from tests.dashboard.conftest import Opener
from tests.dashboard.harness import Board, Served
from tests.dashboard.test_access import log_in
from tests.dashboard.test_pages import overflow
from tests.server.http.harness import HttpChild

SEVERAL = ("--shards", "4", "--processes", "2")


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpChild]:
    """A server of two processes."""
    with HttpChild(tmp_path_factory.mktemp("several") / "data", *SEVERAL) as child:
        yield child


@pytest.fixture
def client(several: HttpChild) -> Iterator[Client]:
    """A client, with the shards balanced."""
    with Client(several.address) as client:
        client.balance_shards()
        yield client


@pytest.fixture
def board(open_board: Opener, several: HttpChild, client: Client) -> Board:
    board = open_board(several)
    board.go("processes")
    expect(shards(board)).to_have_count(4)
    return board


def card(board: Board, number: int) -> Locator:
    return board.page.get_by_role("region", name=f"Process {number}", exact=True)


def fact(board: Board, number: int, name: str) -> Locator:
    return card(board, number).locator("dl div").filter(has_text=name).locator("dd")


def chips(board: Board, number: int) -> Locator:
    return card(board, number).locator(".chip")


def shards(board: Board) -> Locator:
    return board.page.get_by_role("region", name="Shards", exact=True).locator("li")


def dialog(board: Board) -> Locator:
    return board.page.get_by_role("dialog")


def colour(locator: Locator) -> str:
    return str(locator.evaluate("element => getComputedStyle(element).borderLeftColor"))


def texts(numbers: list[int]) -> list[str]:
    return list(map(str, numbers))


def test_processes_are_shown_with_their_shards_and_load(board: Board, client: Client) -> None:
    found = client.cluster()
    for process in found.processes:
        shown = card(board, process.number)
        expect(shown.locator(".badge")).to_have_text("up")
        expect(chips(board, process.number)).to_have_text(texts(process.shards))
        expect(fact(board, process.number, "Process id")).to_have_text(str(process.pid))
        expect(fact(board, process.number, "Restarts")).to_have_text("0")
        expect(fact(board, process.number, "Memory")).to_have_text(re.compile(r"^[\d.]+ MiB$"))
        expect(fact(board, process.number, "Processor")).to_have_text(re.compile(r"^\d+ %$"))
        expect(fact(board, process.number, "Up for")).to_have_text(re.compile(r"^\d+ (s|min)"))
    expect(board.page.locator(".page-head .badge")).to_have_text("2 up")
    by_process: dict[int, set[str]] = {}
    for shard in found.shards:
        cell = shards(board).nth(shard.number)
        expect(cell).to_have_text(f"{shard.number}process {shard.process}epoch {shard.epoch}")
        by_process.setdefault(shard.process, set()).add(colour(cell.locator(".shard")))
    assert sorted(map(len, by_process.values())) == [1, 1]
    assert len(set.union(*by_process.values())) == 2


def test_a_busy_process_shows_what_it_uses(board: Board, client: Client) -> None:
    stopping = threading.Event()
    number = client.cluster().shards[0].process
    use = fact(board, number, "Processor")
    expect(use).to_have_text(re.compile(r"^\d+ %$"))
    with Client(f"127.0.0.1{client.cluster().processes[number].address}") as direct:

        def ask() -> None:
            while not stopping.is_set():
                direct.status()

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            expect(use).to_have_text(re.compile(r"^[1-9]\d+ %$"))
            expect(fact(board, number, "Connections")).not_to_have_text("0")
        finally:
            stopping.set()
            asking.join()


def test_a_shard_is_moved_to_another_process(board: Board, client: Client) -> None:
    before = client.cluster()
    origin = before.shards[1].process
    target = 1 - origin
    board.open("Move a shard")
    board.page.get_by_label("Shard", exact=True).select_option("1")
    expect(board.page.get_by_label("To", exact=True)).to_have_value(str(target))
    board.click("Move it")
    board.see(f"Shard 1 is in process {target}; it was away for")
    expect(dialog(board)).to_have_count(0)
    expect(shards(board).nth(1)).to_contain_text(f"process {target}")
    after = client.cluster()
    assert after.shards[1].process == target
    expect(chips(board, target)).to_have_text(texts(after.processes[target].shards))
    move = board.rows("Last moves").first.locator("td")
    expect(move.nth(0)).to_have_text("1")
    expect(move.nth(1)).to_have_text(str(origin))
    expect(move.nth(2)).to_have_text(str(target))
    expect(move.nth(4)).to_have_text(re.compile(r"^[\d.]+ (µs|ms|s)$"))


def test_a_click_on_a_shard_moves_this_one_and_the_keyboard_is_enough(board: Board, client: Client) -> None:
    origin = client.cluster().shards[3].process
    shards(board).nth(3).get_by_role("button").focus()
    board.page.keyboard.press("Enter")
    expect(board.page.get_by_label("Shard", exact=True)).to_have_value("3")
    board.page.get_by_label("To", exact=True).focus()
    board.page.keyboard.press("Enter")
    board.page.get_by_role("button", name="Move it").press("Enter")
    expect(shards(board).nth(3)).to_contain_text(f"process {1 - origin}")
    board.go()
    expect(board.heading("Overview")).to_be_visible()
    board.page.keyboard.press("g")
    board.page.keyboard.press("r")
    expect(board.heading("Processes")).to_be_visible()


def test_a_process_is_drained_and_gets_its_share_again(board: Board, client: Client) -> None:
    card(board, 0).get_by_role("button", name="Drain").click()
    expect(dialog(board)).to_contain_text("Its 2 shards go to the other processes")
    board.click("Cancel")
    assert len(client.cluster().processes[0].shards) == 2
    card(board, 0).get_by_role("button", name="Drain").click()
    board.click("Drain it")
    board.see("Process 0 has no shards any more.")
    expect(card(board, 0).locator(".badge")).to_have_text("draining")
    expect(card(board, 0).locator(".chips")).to_have_text("no shards")
    expect(card(board, 0).get_by_role("button", name="Drain")).to_have_count(0)
    assert client.cluster().processes[1].shards == [0, 1, 2, 3]
    board.open("Move a shard")
    expect(dialog(board)).to_contain_text("No other process is up and may have shards")
    expect(dialog(board).get_by_role("button", name="Move it")).to_be_disabled()
    board.click("Cancel")
    board.open("Balance")
    board.click("Balance them")
    board.see("All processes share the shards.")
    expect(chips(board, 0)).to_have_count(2)
    assert {process.state for process in client.cluster().processes} == {"up"}


def test_what_is_going_on_is_shown_and_goes_on_when_the_dialogue_is_closed(board: Board, client: Client) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    board.page.route("**/v1/cluster/drain", hold)
    card(board, 1).get_by_role("button", name="Drain").click()
    board.click("Drain it")
    expect(dialog(board).get_by_role("status")).to_have_text("0 of 2 shards moved…")
    expect(dialog(board).get_by_role("button", name="Drain it")).to_be_disabled()
    moving = client.cluster().processes[1].shards[0]
    client.move_shard(moving, 0)
    expect(dialog(board).get_by_role("status")).to_have_text("1 of 2 shards moved…")
    dialog(board).get_by_role("button", name="Close").last.click()
    expect(dialog(board)).to_have_count(0)
    held[0].continue_()
    board.see("Process 1 has no shards any more.")


def test_what_goes_wrong_stands_in_the_dialogue(board: Board, client: Client) -> None:
    board.allow("the server responded with a status of 400")
    card(board, 0).get_by_role("button", name="Drain").click()
    client.drain_process(1)
    board.click("Drain it")
    expect(dialog(board).get_by_role("alert")).to_contain_text("process 0 is the only one that can have shards now")
    assert client.cluster().processes[0].shards == [0, 1, 2, 3]


def answer_with(board: Board, change: ClusterInfo) -> None:
    body = msgspec.json.encode(change).decode()
    board.page.route("**/v1/cluster", lambda route: route.fulfill(body=body, content_type="application/json"))


def test_what_is_wrong_with_a_process_or_a_shard_is_seen(board: Board, client: Client) -> None:
    found = client.cluster()
    found.processes[0].state, found.processes[0].restarts = "gone", 4
    found.shards[0].state, found.shards[0].process = "closed", -1
    found.shards[0].problem = "<b>its journal</b> is damaged"
    found.shards[1].state = "moving"
    answer_with(board, found)
    expect(card(board, 0).locator(".badge")).to_have_text("gone")
    expect(board.page.locator(".page-head .badge")).to_have_text(["1 gone", "1 up"])
    expect(fact(board, 0, "Restarts")).to_have_text("4")
    expect(card(board, 0).get_by_role("button", name="Drain")).to_have_count(0)
    expect(shards(board).nth(0)).to_contain_text("closed…")
    expect(shards(board).nth(1)).to_contain_text("moving…")
    board.see("Shard 0 could not be opened: <b>its journal</b> is damaged")


def test_many_processes_and_shards_fit_a_phone_and_the_dark(
    open_board: Opener, client: Client, several: HttpChild
) -> None:
    found = client.cluster()
    process, shard = found.processes[0], found.shards[0]
    found.processes = [msgspec.structs.replace(process, number=n, shards=list(range(n, 1024, 32))) for n in range(32)]
    found.shards = [msgspec.structs.replace(shard, number=n, process=n % 32, epoch=12_345) for n in range(1024)]
    for width, scheme in ((375, "light"), (375, "dark"), (1280, "dark")):
        board = open_board(several, width=width, scheme=scheme)
        answer_with(board, found)
        board.go("processes")
        expect(shards(board)).to_have_count(1024)
        expect(board.page.locator(".process")).to_have_count(32)
        assert overflow(board) <= 0, (width, scheme)


def test_a_server_of_one_process_says_how_to_have_several(open_board: Opener, fresh: Served) -> None:
    board = open_board(fresh)
    board.go("processes")
    board.see("This server is one process")
    board.see("penstock serve ./data --shards 8 --processes 4")
    expect(card(board, 0).locator(".badge")).to_have_text("up")
    expect(shards(board)).to_have_text(["0process 0epoch 1"])
    for offered in ("Move", "Drain", "Balance"):
        expect(board.page.get_by_role("button", name=offered)).to_have_count(0)
    expect(board.table("Last moves")).to_have_count(0)


def test_moving_is_offered_to_administrators_and_processes_to_tokens_of_all_topics(
    open_board: Opener, tmp_path: Path
) -> None:
    path = tmp_path / "data"
    path.mkdir()
    file = TokenFile(path)
    reader = file.create("reader", ["read"]).secret
    limited = file.create("limited", ["admin"], ["orders*"]).secret
    boss = file.create("boss", ["admin"]).secret
    with HttpChild(path, *SEVERAL, auth="tokens") as server:
        board = open_board(server)
        board.allow("the server responded with a status of 401")
        board.allow("the server responded with a status of 403")
        board.go("processes")
        log_in(board, reader)
        expect(shards(board)).to_have_count(4)
        for offered in ("Move", "Drain", "Balance"):
            expect(board.page.get_by_role("button", name=offered)).to_have_count(0)
        refused = "fetch('/v1/cluster/balance', { method: 'POST' }).then((reply) => reply.status)"
        assert board.page.evaluate(refused) == 403
        board.click("Log out")
        log_in(board, limited)
        board.see("Your token does not allow this")
        board.click("Log out")
        log_in(board, boss)
        expect(board.page.get_by_role("button", name="Balance")).to_be_visible()
        expect(card(board, 1).get_by_role("button", name="Drain")).to_be_visible()
