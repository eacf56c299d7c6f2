"""YAML files as graphs of nodes; what cannot be read is told with its place."""

from __future__ import annotations

from pathlib import Path

import yaml

from penstock.server.settings.values import Remark


def compose(path: Path, problems: list[Remark]) -> yaml.Node | None:
    """The root of a file; None if there is nothing in it, or if it cannot be read, which is added to the problems."""
    content = ""
    try:
        content = path.read_bytes().decode("utf-8-sig")
        root: yaml.Node | None = yaml.compose(content, Loader=yaml.SafeLoader)
    except FileNotFoundError:
        problems.append(Remark(str(path), "there is no such file"))
    except OSError as error:
        problems.append(Remark(str(path), f"the file cannot be read: {error.strerror}"))
    except UnicodeDecodeError as error:
        place = _behind(path, error.object[: error.start].decode())
        problems.append(Remark(place, "this is not UTF-8 text"))
    except yaml.reader.ReaderError as error:
        place = _behind(path, content[: error.position])
        problems.append(Remark(place, f"a file of text has no character like {content[error.position]!r}"))
    except yaml.MarkedYAMLError as error:
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        problems.append(Remark(place_of(path, error.problem_mark), f"this is not YAML: {reason}"))
    except RecursionError:
        problems.append(Remark(str(path), "the file is nested too deeply"))
    else:
        return root
    return None


def place_of(path: Path, mark: yaml.Mark | None) -> str:
    """Where a node stands: `penstock.yaml:3:5`."""
    return f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)


def _behind(path: Path, content: str) -> str:
    """The place of what follows this content."""
    lines = content.split("\n")
    return f"{path}:{len(lines)}:{len(lines[-1]) + 1}"
