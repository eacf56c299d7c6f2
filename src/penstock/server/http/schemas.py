"""Schemas of bodies, with what the code says about each of their fields."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, get_args

import msgspec

from penstock.server.http.vocabulary import MEANINGS
from penstock.server.settings.writing import field_texts

REFERENCE = "#/components/schemas/"


def schemas_of(types: Sequence[type[Any]]) -> dict[str, dict[str, Any]]:
    """The schemas of some types and of all that they have inside, by name."""
    _, components = msgspec.json.schema_components(
        types, ref_template=REFERENCE + "{name}", schema_hook=lambda _: {"type": "string"}
    )
    known = {kind.__name__: kind for kind in structs()}
    for name, schema in components.items():
        if name in known:
            _describe(schema, known[name])
    return components


def structs(base: type[msgspec.Struct] = msgspec.Struct) -> Iterator[type[msgspec.Struct]]:
    """The bodies of all routes."""
    for kind in base.__subclasses__():
        if kind.__module__.startswith("penstock.server."):
            yield kind
        yield from structs(kind)


def _describe(schema: dict[str, Any], kind: type[msgspec.Struct]) -> None:
    """Say of each field what the text below it in the code says, or what its name means everywhere."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if issubclass(base, msgspec.Struct) and base is not msgspec.Struct:
            texts.update(field_texts(base))
    for field in msgspec.structs.fields(kind):
        shown = schema.get("properties", {}).get(field.encode_name, {})
        text = texts.get(field.name) or MEANINGS.get(field.encode_name)
        if text is not None:
            shown.setdefault("description", text)
        if field.type is datetime or datetime in get_args(field.type):
            for choice in shown.get("anyOf", [shown]):
                if choice.get("type") == "string":
                    choice["format"] = "date-time"


def inlined(schema: Any, components: dict[str, dict[str, Any]]) -> Any:
    """A schema without references."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            return inlined(components[str(schema["$ref"]).removeprefix(REFERENCE)], components)
        return {name: inlined(value, components) for name, value in schema.items()}
    if isinstance(schema, list):
        return [inlined(value, components) for value in schema]
    return schema
