"""The configuration file: YAML read as a graph of nodes, so that every value and every problem has its place."""

from __future__ import annotations

from pathlib import Path

import yaml

from penstock.model.errors import InvalidArgument
from penstock.server.settings.table import KEYS, SECTIONS, SETTINGS, camel, children, suggestion
from penstock.server.settings.values import Given, Remark, number, read

_TAG = "tag:yaml.org,2002:"
_NULL = _TAG + "null"
_SCALARS = {_TAG + kind for kind in ("str", "int", "float", "bool", "timestamp", "value")}
_PLACES = {setting.name: key for key, setting in SETTINGS.items()} | {section: section for section in SECTIONS}
_ANYWHERE = {spelling: key for name, key in _PLACES.items() for spelling in (name, camel(name))}


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


class ConfigFile:
    """What one file gives, what is wrong with it, and what its author should know."""

    def __init__(self, path: Path) -> None:
        self.given: list[Given] = []
        self.problems: list[Remark] = []
        self.notices: list[Remark] = []
        self._path = path
        self._setters: dict[str, tuple[str, object]] = {}  # where each option was given first, and as what
        root = compose(path, self.problems)
        if root is not None and root.tag != _NULL:
            self._section(root, "")

    def _section(self, node: yaml.Node, section: str) -> None:
        """Read a mapping of keys; an unknown or repeated one is a problem."""
        if not isinstance(node, yaml.MappingNode) or node.tag != _TAG + "map":
            what = section or "the file"
            self._refuse(node.start_mark, f"{what} holds keys: write lines such as `key: value` below it")
            return
        known = children(section)
        first: dict[str, str] = {}
        for key_node, value_node in node.value:
            written = key_node.value if isinstance(key_node, yaml.ScalarNode) else "this"
            shown = f"{section}.{written}" if section else written
            if written not in known:
                self._refuse(key_node.start_mark, f"{shown}: unknown key{_near(written, known)}")
                continue
            key = f"{section}.{known[written]}" if section else known[written]
            if key in first:
                self._refuse(key_node.start_mark, f"{shown} is given twice, first at {first[key]}")
                continue
            first[key] = self._place(key_node.start_mark)
            if key in KEYS:
                self._option(key, shown, key_node, value_node)
            elif value_node.tag != _NULL:
                self._section(value_node, key)

    def _option(self, key: str, shown: str, key_node: yaml.Node, value_node: yaml.Node) -> None:
        """Take over what one key sets."""
        place = self._place(value_node.start_mark)
        origin = f"{self._path}:{key_node.start_mark.line + 1}"
        try:
            meaning = KEYS[key](_value(value_node))
        except InvalidArgument as error:
            self.problems.append(Remark(place, f"{shown}: {error}"))
            return
        if meaning.notice:
            self.notices.append(Remark(self._place(key_node.start_mark), f"{shown}: {meaning.notice}"))
        for name, value in meaning.sets.items():
            if name in self._setters:
                other, meant = self._setters[name]
                if name != "server.host":
                    self._refuse(key_node.start_mark, f"{shown} sets {name}, which {other} sets too")
                elif value != meant:
                    self._refuse(
                        key_node.start_mark, f"{shown}: all ports have one host, and {other} sets {meant!r} already"
                    )
                continue
            self._setters[name] = (origin, value)
            try:
                self.given.append(Given(name, read(SETTINGS[name].parse, value), place, origin))
            except InvalidArgument as error:
                self.problems.append(Remark(place, f"{shown}: {error}"))

    def _refuse(self, mark: yaml.Mark | None, message: str) -> None:
        self.problems.append(Remark(self._place(mark), message))

    def _place(self, mark: yaml.Mark | None) -> str:
        return place_of(self._path, mark)


def _near(written: str, known: dict[str, str]) -> str:
    """The key that was meant: the same name in another section, or else one like it, here or there."""
    if written in _ANYWHERE:
        return f", did you mean {_ANYWHERE[written]}?"
    return suggestion(written, known) or suggestion(written, _ANYWHERE)


def _value(node: yaml.Node) -> object:
    """The text of a value, None for null, or a mapping of such; numbers stay text, options read them their own way."""
    if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
        pairs = [(_scalar(key), _scalar(value)) for key, value in node.value]
        mapping = {_numeric(key): _numeric(value) for key, value in pairs}
        if len(mapping) < len(pairs):
            raise InvalidArgument("a key is given twice")
        return mapping
    return _scalar(node)


def _scalar(node: yaml.Node) -> str | None:
    if node.tag == _NULL:
        if node.value == "":
            raise InvalidArgument("there is no value: give one, or null where nothing is meant")
        return None
    if isinstance(node, yaml.ScalarNode) and node.tag in _SCALARS:
        return str(node.value)
    kind = "a list" if isinstance(node, yaml.SequenceNode) else "this"
    raise InvalidArgument(f"{kind} cannot be a value here: give text or a number")


def _numeric(value: str | None) -> int | float | str | None:
    return value if value is None else number(value)
