"""What a file gives, before it is checked: mappings, lists and scalars, each with its line."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from penstock.model.errors import InvalidArgument
from penstock.server.settings.files import compose, place_of
from penstock.server.settings.values import Remark

_TAG = "tag:yaml.org,2002:"
_NODES_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Given:
    """A value: a dict or a list of others, or a scalar, with the text that it was written as."""

    value: object
    text: str = ""
    line: int | None = None

    def items(self) -> dict[str, Given]:
        """What a mapping holds."""
        if isinstance(self.value, dict):
            return self.value
        raise InvalidArgument("here are keys: write lines such as `key: value` below it")

    @property
    def found(self) -> dict[str, Given]:
        """The parts of a mapping; empty if it is no mapping."""
        return self.value if isinstance(self.value, dict) else {}

    def at(self, name: str) -> Given:
        """A part of a mapping; without a value if it is missing."""
        return self.found.get(name, Given(None))

    def parts(self) -> list[Given]:
        """What a list holds."""
        if isinstance(self.value, list):
            return self.value
        raise InvalidArgument("here is a list: begin each of its parts with `- `")


def from_yaml(path: Path, problems: list[Remark]) -> Given:
    """What a YAML file gives; what cannot be read is added to the problems."""
    root = compose(path, problems)
    if root is None:
        return Given({})
    try:
        return _Reader(path, problems).given(root)
    except (RecursionError, OverflowError):
        problems.append(Remark(str(path), "the file is nested too deeply, or refers to itself"))
        return Given({})


class _Reader:
    """Turns the nodes of one file into what they give."""

    def __init__(self, path: Path, problems: list[Remark]) -> None:
        self._path = path
        self._problems = problems
        self._scalars = yaml.SafeLoader("")
        self._nodes = 0

    def given(self, node: yaml.Node) -> Given:
        line = node.start_mark.line + 1
        self._nodes += 1
        if self._nodes > _NODES_MAX:  # names for parts can make a small file a large one
            raise OverflowError
        if isinstance(node, yaml.SequenceNode):
            return Given([self.given(part) for part in node.value], line=line)
        if isinstance(node, yaml.MappingNode):
            found: dict[str, Given] = {}
            for key, value in node.value:
                name = str(key.value) if isinstance(key, yaml.ScalarNode) else "?"
                if name in found:
                    self._problems.append(Remark(place_of(self._path, key.start_mark), f"{name} is given twice"))
                inner = self.given(value)
                found[name] = dataclasses.replace(inner, line=key.start_mark.line + 1)
            return Given(found, line=line)
        try:
            value = self._scalars.construct_object(node)
        except (ValueError, yaml.YAMLError):
            value = str(node.value)
        return Given(value, str(node.value), line)


def from_python(value: object) -> Given:
    """What objects of Python give: the classes of `spec`, or mappings and lists like those of a file."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        kept = {
            field.name.rstrip("_"): getattr(value, field.name)
            for field in fields
            if getattr(value, field.name) != field.default
        }
        return from_python(kept)
    if isinstance(value, Mapping):
        return Given({str(name): from_python(part) for name, part in value.items()})
    if isinstance(value, list | tuple):
        return Given([from_python(part) for part in value])
    return Given(value, str(value))
