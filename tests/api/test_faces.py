"""The faces that are made from others are current, and are what they should be."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

from penstock.client import AsyncClient, Client
from penstock.client.consumer import AsyncClientConsumer, AsyncReceived
from penstock.client.sync_consumer import ClientConsumer, ClientDelivery
from tools import faces

MADE = dict(faces.faces())


@pytest.mark.parametrize("path", MADE, ids=lambda path: str(path.relative_to(faces.SOURCE)))
def test_every_file_that_is_made_is_current_and_says_how_to_make_it(path: Path) -> None:
    assert path.read_text() == MADE[path], "run `make faces`"
    assert "by tools/faces.py" in path.read_text().splitlines()[0]


def test_a_file_that_was_changed_by_hand_is_found(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    changed = tmp_path / "calls.py"
    changed.write_text("async def call(): ...\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(faces, "faces", lambda: iter([(changed, "async def call() -> None: ...\n")]))
        patch.setattr(faces, "ROOT", tmp_path)
        patch.setattr("sys.argv", ["faces", "--check"])
        with pytest.raises(SystemExit, match=r"calls\.py is not current"):
            faces.main()
        patch.setattr("sys.argv", ["faces"])
        faces.main()
        patch.setattr("sys.argv", ["faces", "--check"])
        with pytest.raises(SystemExit) as ended:
            faces.main()
    assert not ended.value.code


def test_nothing_of_asyncio_is_left_in_the_plain_half() -> None:
    for name in faces.AWAITED:
        tree = ast.parse((faces.SOURCE / f"client/sync_{name}.py").read_text())
        kinds = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)
        assert not [one for one in ast.walk(tree) if isinstance(one, kinds)]
        names = {one.id for one in ast.walk(tree) if isinstance(one, ast.Name)}
        assert not {one for one in names if one.startswith("Async") or one == "asyncio"}


@pytest.mark.parametrize(
    ("awaited", "plain"),
    [(AsyncClient, Client), (AsyncClientConsumer, ClientConsumer), (AsyncReceived, ClientDelivery)],
)
def test_both_halves_of_the_client_have_the_same_methods_with_the_same_words(awaited: type, plain: type) -> None:
    def methods(face: type) -> dict[str, tuple[list[str], str | None]]:
        found = inspect.getmembers(face, inspect.isfunction)
        return {
            name: (list(inspect.signature(method).parameters), inspect.getdoc(method))
            for name, method in found
            if not name.startswith("_")
        }

    assert methods(awaited) == methods(plain)
