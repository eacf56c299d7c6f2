"""Options written down: values as people write them, and whole files with comments, which can be read again.

>>> write_value("retention_age", 604800.0), write_value("max_value_bytes", 16777216), write_value("sync_interval", 0.1)
('7d', '16MiB', '100ms')
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable
from functools import cache
from itertools import pairwise

import yaml

from penstock.model.units import parse_duration
from penstock.server.settings.table import SECTIONS, SETTINGS, Setting

_DURATIONS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}
_SIZES = {"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10}
_PLAIN = re.compile(r"[A-Za-z0-9./][A-Za-z0-9_./-]*")
_WIDTH = 110

_HEAD = """\
# The configuration of a Penstock server: every option, with its default.
#
# Durations are seconds or text (250ms, 30s, 1h30m, 7d), sizes are bytes or text (64KiB, 10GB), null is none.
# The environment variable that is named behind an option goes before this file, a flag before both.
"""


def write_value(name: str, value: object) -> str:
    """The value of an option as it may stand in a file, exactly."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return _duration(value)
    if isinstance(value, int):
        return _size(value) if name.endswith("_bytes") else str(value)
    if isinstance(value, tuple):
        return "{" + ", ".join(f"{lane}: {weight}" for lane, weight in value) + "}"
    text = str(value)
    if _PLAIN.fullmatch(text) and text.lower() != "null":
        return text
    return str(yaml.safe_dump(text, default_style='"', allow_unicode=True, width=float("inf"))).rstrip("\n")


def write_file(
    value: Callable[[Setting], object], behind: Callable[[Setting], str], above: Callable[[Setting], list[str]]
) -> str:
    """A configuration file with these values, each with a comment behind it and lines of comment above it."""
    lines: list[str] = []
    for section in SECTIONS:
        lines += ["", f"{section}:"]
        for setting in (setting for setting in SETTINGS.values() if setting.section == section):
            lines += [f"  # {line}" for line in above(setting)]
            lines.append(f"  {setting.name}: {write_value(setting.name, value(setting))}  # {behind(setting)}")
    return "\n".join(lines[1:]) + "\n"


def write_example() -> str:
    """A configuration file with every option, its default and what it means."""
    texts = {section: field_texts(config) for section, config in SECTIONS.items()}
    return f"{_HEAD}\n" + write_file(
        value=lambda setting: setting.default,
        behind=lambda setting: setting.variable,
        above=lambda setting: textwrap.wrap(texts[setting.section][setting.name], _WIDTH),
    )


@cache
def field_texts(kind: type) -> dict[str, str]:
    """What each field of a class means: the text below it in the source; nothing where there is no source."""
    try:
        source = textwrap.dedent(inspect.getsource(kind))
    except (OSError, TypeError):
        return {}
    (body,) = [node.body for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    found = {}
    for field, text in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            value = text.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                found[field.target.id] = inspect.cleandoc(value.value)
    return found


def _duration(seconds: float) -> str:
    """The largest unit that gives a whole number, or plain seconds."""
    if not seconds:
        return "0s"
    for unit, length in _DURATIONS.items():
        text = f"{round(seconds / length)}{unit}"
        if parse_duration(text) == seconds:
            return text
    return repr(seconds)


def _size(count: int) -> str:
    """The largest unit that gives a whole number, or plain bytes."""
    return next((f"{count // size}{unit}" for unit, size in _SIZES.items() if count and count % size == 0), str(count))
