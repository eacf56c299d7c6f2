"""The page of the promises, the ids that tests carry and the ids in comments belong together."""

from __future__ import annotations

import re

import pytest

from tests.promises import NOT_SHOWN, PAGE, ROOT, filled_in, holders, ids_of_name, mentions, promises

TEXT = PAGE.read_text()
SHOWN, _, REST = TEXT.partition(NOT_SHOWN)
ON_THE_PAGE = [row.id for row in promises(TEXT)]
UPDATE = "`python -m tests.promises` fills in the tests of docs/promises.md"


@pytest.fixture(scope="module")
def carried() -> dict[str, str]:
    return holders()


def test_every_id_that_a_test_carries_is_on_the_page(carried: dict[str, str]) -> None:
    assert {promise: tests for promise, tests in carried.items() if promise not in ON_THE_PAGE} == {}


def test_every_promise_names_the_files_whose_tests_hold_it(carried: dict[str, str]) -> None:
    assert {row.id: row.tests for row in promises(SHOWN)} == {
        row.id: carried.get(row.id, "a test that carries this id") for row in promises(SHOWN)
    }, UPDATE


def test_a_promise_that_a_test_shows_is_not_listed_as_not_shown(carried: dict[str, str]) -> None:
    not_shown = {row.id for row in promises(REST)}
    assert not_shown
    assert not_shown & carried.keys() == set(), "move the row to its group, with a column of tests"


def test_an_id_has_one_meaning_and_numbers_leave_no_gap() -> None:
    families: dict[str, list[int]] = {}
    for promise in ON_THE_PAGE:
        family = promise.rstrip("0123456789")
        families.setdefault(family, []).append(int(promise.removeprefix(family)))
    for family, numbers in families.items():
        assert sorted(numbers) == list(range(1, len(numbers) + 1)), family


def test_every_row_of_the_page_is_understood() -> None:
    rows = re.findall(r"^\| *[A-Z]+[0-9]+ *\|.*$", TEXT, re.MULTILINE)
    assert len(rows) == len(ON_THE_PAGE)


def test_ids_in_comments_and_docstrings_are_on_the_page() -> None:
    unknown = [(promise, str(path.relative_to(ROOT))) for promise, path in mentions() if promise not in ON_THE_PAGE]
    assert unknown == []


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("test_L1_what_is_acknowledged_is_there", ["L1"]),
        ("test_Q2_Q7_Q10_nothing_is_lost", ["Q2", "Q7", "Q10"]),
        ("TR1_an_invariant_of_a_stateful_test", ["TR1"]),
        ("test_a_lost_lease_raises_LeaseLost", []),
        ("test_what_Q4_says", []),
    ],
)
def test_ids_are_read_from_the_head_of_a_name(name: str, ids: list[str]) -> None:
    assert ids_of_name(name) == ids


def test_filling_in_changes_the_column_of_tests_and_nothing_else() -> None:
    page = "Text.\n\n| L1 | Kept. | old |\n| L2 | Kept too. |  |\n\n| C1 | Not shown. |\n"
    done = filled_in(page, {"L1": "broker/recovery", "C1": "broker/other"})
    assert done == page.replace("old", "broker/recovery")
