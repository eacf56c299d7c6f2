"""Find which tests hold which promise, and fill in the column of tests in `docs/promises.md`.

    python -m tests.promises

A test carries the ids of the promises that it checks: in its name (`test_L1_…`, `test_L4_R3_…`, and the invariants of
stateful tests, `Q1_…`), or in the message of an assertion. `tests/test_promises.py` checks the page.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/promises.md"
NOT_SHOWN = "\n## Not shown by a test of its own yet\n"

_ID = r"[A-Z]{1,2}[1-9][0-9]?"
_NAME = re.compile(rf"(?:test_)?((?:{_ID}_)+)")
_WORD = re.compile(rf"\b{_ID}\b")
_ROW = re.compile(rf"^\| ({_ID}) \| ([^|]+) \|(?: ([^|]*) \|)?$", re.MULTILINE)
_MAY_CARRY = re.compile(rf"(?:\b|_){_ID}(?:\b|_)")  # most files do not, and need not be parsed


class Promise(NamedTuple):
    id: str
    promise: str
    tests: str


def promises(text: str) -> list[Promise]:
    """The rows of the page, or of a part of it."""
    return [Promise(*row) for row in _ROW.findall(text)]


def ids_of_name(name: str) -> list[str]:
    """The ids at the head of the name of a test: `test_L4_R3_a_full_disk` carries L4 and R3."""
    carried = _NAME.match(name)
    return carried[1].rstrip("_").split("_") if carried else []


def holders() -> dict[str, str]:
    """Each id that a test carries, with the files of these tests as the page writes them."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        for promise in _carried(path):
            found.setdefault(promise, set()).add(_short(path))
    return {promise: ", ".join(sorted(files)) for promise, files in found.items()}


def mentions() -> Iterator[tuple[str, Path]]:
    """Each id in a comment or a docstring of the source and the tests, with its file."""
    for folder in ("src", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text()
            if _MAY_CARRY.search(text):
                for words in (*_comments(text), *_docstrings(ast.parse(text))):
                    yield from ((promise, path) for promise in _WORD.findall(words))


def filled_in(text: str, tests: dict[str, str]) -> str:
    """The page with its column of tests as it should be; rows without that column stay as they are."""

    def row(found: re.Match[str]) -> str:
        if found[3] is None:
            return found[0]
        return f"| {found[1]} | {found[2]} | {tests.get(found[1], '')} |"

    return _ROW.sub(row, text)


def _carried(path: Path) -> Iterator[str]:
    text = path.read_text()
    if not _MAY_CARRY.search(text):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from ids_of_name(node.name)
        elif isinstance(node, ast.Assert) and node.msg is not None:
            for part in ast.walk(node.msg):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield from _WORD.findall(part.value)


def _short(path: Path) -> str:
    """`shard/leases` for tests/shard/test_leases.py."""
    return str(path.relative_to(ROOT / "tests").with_name(path.stem.removeprefix("test_")))


def _comments(text: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def _docstrings(tree: ast.Module) -> Iterable[str]:
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    return (ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, documented))


if __name__ == "__main__":
    PAGE.write_text(filled_in(PAGE.read_text(), holders()))
