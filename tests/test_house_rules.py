"""Rules of the house that no linter checks: how long a file is, who knows whose private names, who imports whom, and
who writes the state of the log.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "src" / "penstock"
LINES_MAX = 400
Modules = Mapping[str, ast.Module]

OF_OTHERS = {
    "_exit": "of os: ends a process without clearing up",
    "_replace": "of every named tuple",
    "_make": "of every named tuple",
    "_asdict": "of every named tuple",
    "_jdf": "of PySpark: a data frame in the JVM, which tells what the public names do not",
    "_jvm": "of PySpark",
    "_jsparkSession": "of PySpark",
    "_unset_keepalive_if_required": "of uvicorn, of which the connections of the HTTP port are subclasses",
    "_should_upgrade": "of uvicorn",
}
"""Private names of other packages that are used, and why."""

COMMITTED = (
    *("by_id", "by_name", "floors", "next_id"),  # of the catalog
    *("changes", "committed", "dedupe", "producers", "window_us"),  # of a topic
    *("committed_end", "going", "next_offset", "segments", "settled_end"),  # of a log
    *("live_bytes", "owners"),  # of a file of the journal
    *("deleted", "files_to_delete", "first_new_id", "schedules", "since", "staged"),  # of the state itself
)
"""What the objects of the log hold: written by `penstock.log` alone, both what is committed and what is reserved."""
_LOG = ("add", "skip", "drop", "close")
WRITERS = {
    "log": _LOG,
    "messages": _LOG,
    "events": ("skip", "drop", "close"),
    "catalog": ("add", "remove"),
    "partition": ("apply", "event_log"),
    "state": ("apply",),
    "topic": ("widen", "configure"),
    "usage": ("took", "gave", "forget"),
    "dedupe": ("expect", "arrive", "remember"),
    "producers": (
        *("expect", "expect_singles", "expect_new_singles", "arrive", "arrive_singles"),
        *("remember", "remember_singles", "keep_to", "restore"),
    ),
    "schedules": ("take", "withdraw"),
}
"""Methods that change such an object, by the name that it usually goes by."""
OWN_STATE = {
    "server.native.pages: page.next_offset": "of a page that is sent",
    "shard.checking.check: self.report.segments": "of a report",
    "views.figures: shown.segments": "of figures",
}
"""What only shares a name with the state of the log."""


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of the package, by its name."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        name = ".".join(("penstock", *path.relative_to(ROOT).with_suffix("").parts))
        found[name.removesuffix(".__init__")] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def test_no_file_is_longer_than_400_lines() -> None:
    lengths = {path: len(path.read_bytes().splitlines()) for path in ROOT.rglob("*.py")}
    assert len(lengths) > 400
    assert {str(path.relative_to(ROOT)): lines for path, lines in lengths.items() if lines > LINES_MAX} == {}


def test_the_state_lock_is_asserted_and_not_only_mentioned() -> None:
    said = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*.py") if "under the state lock" in path.read_text()]
    assert said == [], "write `assert lock.held` instead, or say nothing where the caller is the one who asserts it"


# Private names.


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _defined(tree: ast.Module) -> set[str]:
    """The names that a module defines: of its own, and of what its classes have."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_own(node):
            found.add(node.attr)
    return found


def _is_own(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def foreign_private_names(tree: ast.Module) -> list[str]:
    """The private names of other modules that a module uses; a subclass is no excuse."""
    defined, found = _defined(tree), []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_private(node.attr):
            if node.attr not in defined and node.attr not in OF_OTHERS:
                found.append(f"line {node.lineno}: {ast.unparse(node)}")
        elif isinstance(node, ast.ImportFrom):
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            found += [f"line {node.lineno}: import of {name}" for name in names if _is_private(name)]
    return found


def test_no_private_name_is_used_in_another_module() -> None:
    found = {name: names for name, tree in modules().items() if (names := foreign_private_names(tree))}
    assert found == {}


def test_a_private_name_of_another_module_is_found() -> None:
    source = """
from penstock.somewhere import _helper
class Half(Parent):
    def _own(self): self._mine, other._theirs = self._parents, self._own()
"""
    assert foreign_private_names(ast.parse(source)) == [
        "line 2: import of _helper",
        "line 4: other._theirs",
        "line 4: self._parents",
    ]


# Circles of imports.


def _imports(tree: ast.Module, known: Modules) -> Iterator[str]:
    """The modules that a module imports: at once, later, or for type checkers."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            assert not node.level, "relative imports are not used here"
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in known else node.module for name in whole)


def circle_in(known: Modules, part_of: Callable[[str], str | None]) -> list[str] | None:
    """Parts that import each other in a circle, the first one, which is a package, again at the end."""
    graph: dict[str, set[str]] = {}
    for name, tree in known.items():
        part = part_of(name)
        if part is not None:
            imported = {part_of(other) for other in _imports(tree, known)} - {part, None}
            graph.setdefault(part, set()).update(other for other in imported if other is not None)
    packages = [part for part in graph if any(name.startswith(f"{part}.") for name in known)]
    return next(filter(None, (_way_back(graph, package) for package in packages)), None)


def _way_back(graph: Mapping[str, set[str]], start: str) -> list[str] | None:
    """The shortest way from a part through others to itself."""
    ways, seen = [[start]], set[str]()
    for way in ways:
        for following in sorted(graph.get(way[-1], set()) - seen):
            if following == start:
                return [*way, start]
            seen.add(following)
            ways.append([*way, following])
    return None


def _children_of(package: str) -> Callable[[str], str | None]:
    depth = package.count(".") + 2

    def part_of(name: str) -> str | None:
        return ".".join(name.split(".")[:depth]) if name.startswith(f"{package}.") else None

    return part_of


PACKAGES = sorted({name.rpartition(".")[0] for name in modules()} - {""})
WITH_ROOMS = sorted({name.rpartition(".")[0] for name in PACKAGES} - {""})


@pytest.mark.parametrize("package", WITH_ROOMS)
def test_no_rooms_of_a_package_import_each_other_in_a_circle(package: str) -> None:
    """A file beside the rooms may not close a circle either; only files of one package may know each other."""
    assert circle_in(modules(), _children_of(package)) is None


def test_the_rooms_of_the_shard_are_looked_at() -> None:
    assert {"penstock", "penstock.shard", "penstock.server", "penstock.spark"} <= set(WITH_ROOMS)


def test_a_circle_of_imports_is_found_and_named() -> None:
    sources = {
        "penstock.low.one": "import os",
        "penstock.low.two": "def later():\n    from penstock.high import three",
        "penstock.high.three": "if TYPE_CHECKING:\n    from penstock.middle.four import Name",
        "penstock.middle.four": "from penstock.low.one import Name",
    }
    known = {name: ast.parse(source) for name, source in sources.items()}
    part_of = _children_of("penstock")
    assert circle_in(known, part_of) == ["penstock.low", "penstock.high", "penstock.middle", "penstock.low"]
    del known["penstock.middle.four"]
    assert circle_in(known, part_of) is None


# One writer.


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    """What a statement assigns to, or deletes."""
    match node:
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            for target in targets:
                yield from _targets_in(target)
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target) | ast.For(target=target):
            yield from _targets_in(target)
        case ast.Call(func=ast.Attribute(value=changed, attr=attr)) if attr in _CHANGES_A_CONTAINER:
            yield changed


_CHANGES_A_CONTAINER = ("append", "extend", "insert", "pop", "popitem", "clear", "update", "setdefault", "discard")


def _targets_in(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        for part in target.elts:
            yield from _targets_in(part)
    elif isinstance(target, ast.Subscript | ast.Starred):
        yield from _targets_in(target.value)
    else:
        yield target


def state_writes(tree: ast.Module) -> set[str]:
    """Where a module writes what belongs to the log; what an object sets of itself is its own."""
    found: set[str] = set()
    for node in ast.walk(tree):
        for target in _targets(node):
            if isinstance(target, ast.Attribute) and target.attr in COMMITTED and not _is_own(target):
                found.add(ast.unparse(target))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
            if node.func.attr in WRITERS.get(name.lstrip("_"), ()):
                found.add(f"{ast.unparse(node.func)}()")
    return found


def test_F1_nothing_but_the_log_writes_the_state_of_the_log() -> None:
    found = {
        f"{name.removeprefix('penstock.')}: {write}"
        for name, tree in modules().items()
        if name.split(".")[1:2] in (["shard"], ["embedded"], ["aio"], ["views"], ["server"], ["worker"])
        for write in state_writes(tree)
    }
    assert found == OWN_STATE.keys()


def test_F1_a_write_to_the_state_of_the_log_is_found() -> None:
    source = """
log.committed_end, other = 1, 2
shard.state.files_to_delete += ["a"]
del catalog.by_id[3]
log.segments.append(info)
partition.messages.skip(5)
self._catalog.add(topic)
self.segments = []
print(log.committed_end)
"""
    assert state_writes(ast.parse(source)) == {
        "log.committed_end",
        "shard.state.files_to_delete",
        "catalog.by_id",
        "log.segments",
        "partition.messages.skip()",
        "self._catalog.add()",
    }
