"""Files of pipelines: YAML, or Python in which they are objects."""

from __future__ import annotations

import contextlib
import importlib
import runpy
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from penstock.model.errors import InvalidArgument
from penstock.server.settings.values import Remark
from penstock.spark.pipelines.checking import check
from penstock.spark.pipelines.given import Given, from_python, from_yaml
from penstock.spark.pipelines.spec import Declared
from penstock.spark.pipelines.value_readers import Misdeclared, Notes

if TYPE_CHECKING:
    from penstock.spark.pipelines.spec import Function

_NAMES = ("server", "checkpoints", "settings", "pipelines")


def load(path: str | Path) -> Declared:
    """What a file declares, checked as far as it can be without Spark; raises `Misdeclared` with all problems."""
    declared, problems = load_partly(path)
    if problems:
        raise Misdeclared(problems)
    return declared


def load_partly(path: str | Path) -> tuple[Declared, list[Remark]]:
    """The parts of a file that could be read, and all problems of the others."""
    path = Path(path)
    notes = Notes(path)
    given = _from_program(path, notes) if path.suffix == ".py" else from_yaml(path, notes.problems)
    if notes.problems:
        raise Misdeclared(notes.problems)
    return check(given, notes), notes.problems


def _from_program(path: Path, notes: Notes) -> Given:
    """What the names of a Python file give."""
    if not path.is_file():
        notes.problems.append(Remark(str(path), "there is no such file"))
        return Given({})
    try:
        with beside(path.parent):
            found = runpy.run_path(str(path), run_name=f"penstock_pipelines_{path.stem}")
    except Exception as error:  # noqa: BLE001 - anything may happen in there
        line = _line_in(path, error)
        notes.problems.append(Remark(f"{path}:{line}" if line else str(path), f"{type(error).__name__}: {error}"))
        return Given({})
    return from_python({name: found[name] for name in _NAMES if name in found})


def _line_in(path: Path, error: BaseException) -> int | None:
    """The last line of the file that an error came through."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno
    trace = traceback.walk_tb(error.__traceback__)
    lines = [line for frame, line in trace if frame.f_code.co_filename == str(path)]
    return lines[-1] if lines else None


def function_of(python: Any, directory: Path) -> Function:
    """The function of a step: itself, or by the name of its module, which lies beside the file or is installed."""
    if callable(python):
        return python  # type: ignore[no-any-return]
    module_name, _, name = python.partition(":")
    with beside(directory):
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            raise InvalidArgument(
                f"there is no module {error.name!r}, neither beside the file nor installed"
            ) from error
        except Exception as error:
            raise InvalidArgument(
                f"the module {module_name} cannot be imported: {type(error).__name__}: {error}"
            ) from error
    found = getattr(module, name, None)
    if not callable(found):
        raise InvalidArgument(f"the module {module_name} has no function {name!r}")
    return found  # type: ignore[no-any-return]


@contextlib.contextmanager
def beside(directory: Path) -> Iterator[None]:
    """Modules in this directory can be imported, and what Spark's workers need of them is sent to them as it is."""
    from pyspark import cloudpickle

    known = set(sys.modules)
    sys.path.insert(0, str(directory.resolve()))
    try:
        yield
    finally:
        sys.path.remove(str(directory.resolve()))
        for name in set(sys.modules) - known:
            module = sys.modules[name]
            if _is_inside(module, directory.resolve()):
                cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _is_inside(module: ModuleType, directory: Path) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and Path(file).is_relative_to(directory) and "site-packages" not in file
