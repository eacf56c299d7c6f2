"""Examples of bodies, made from their schemas: every name has the value that a reader would expect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.server.http.documenting import REFERENCE
from penstock.server.http.vocabulary import VALUES

_TIME = "2026-12-24T18:00:00Z"
_WORTH_SHOWING = frozenset({"receipt_handle", "reason"})
"""What the example of a request has although it may be left out."""
_DEEPEST = 8


class Examples:
    """Makes examples of schemas that may refer to the schemas of a document."""

    def __init__(self, schemas: Mapping[str, Any]) -> None:
        self._schemas = schemas

    def description(self, schema: Any) -> str:
        """What a schema is for."""
        return str(self._resolved(schema).get("description", "What was asked for."))

    def of(self, schema: Any, name: str = "", *, whole: bool = True, depth: int = 0) -> Any:
        """An example: with everything in it, or with what a request must send and little more."""
        schema = self._resolved(schema)
        if name in VALUES and self._fits(VALUES[name], schema):
            return VALUES[name]
        if schema.get("examples"):
            return schema["examples"][0]
        for key in ("example", "const", "default"):
            if schema.get(key) is not None:
                return schema[key]
        if schema.get("enum"):
            return schema["enum"][0]
        choices = [choice for choice in _choices(schema) if self._resolved(choice).get("type") != "null"]
        if choices:
            return self.of(choices[0], name, whole=whole, depth=depth)
        return self._of_type(schema, name, whole=whole, depth=depth)

    def _of_type(self, schema: dict[str, Any], name: str, *, whole: bool, depth: int) -> Any:
        kind = _type_of(schema)
        if kind == "object":
            return self._object(schema, whole=whole, depth=depth)
        if kind == "array":
            if depth > _DEEPEST or "items" not in schema:
                return []
            return [self.of(schema["items"], name.removesuffix("s"), whole=whole, depth=depth + 1)]
        if kind == "string":
            return _TIME if schema.get("format") == "date-time" or name.endswith("_at") else name or "text"
        if kind in ("integer", "number"):
            return max(1, int(schema.get("minimum", 1)))
        return False if kind == "boolean" else None

    def _object(self, schema: dict[str, Any], *, whole: bool, depth: int) -> dict[str, Any]:
        required = schema.get("required", ())
        if depth > _DEEPEST:
            return {}
        special = f"{schema.get('title')}."
        return {
            name: VALUES.get(special + name) or self.of(field, name, whole=whole, depth=depth + 1)
            for name, field in schema.get("properties", {}).items()
            if whole or name in required or name in _WORTH_SHOWING
        }

    def _fits(self, value: Any, schema: Any) -> bool:
        """Whether a value has the type that a schema asks for."""
        schema = self._resolved(schema)
        choices = _choices(schema)
        if choices:
            return any(self._fits(value, choice) for choice in choices)
        if "enum" in schema:
            return value in schema["enum"]
        kinds = schema.get("type", [])
        if not _KINDS[type(value)].intersection([kinds] if isinstance(kinds, str) else kinds):
            return False
        if isinstance(value, list):
            return all(self._fits(item, schema.get("items", {})) for item in value)
        if isinstance(value, dict) and isinstance(schema.get("additionalProperties"), dict):
            return all(self._fits(item, schema["additionalProperties"]) for item in value.values())
        return "$ref" not in schema and not schema.get("properties")

    def _resolved(self, schema: Any) -> dict[str, Any]:
        while "$ref" in schema:
            schema = self._schemas[schema["$ref"].removeprefix(REFERENCE)]
        return dict(schema)


_KINDS: dict[type, set[str]] = {
    str: {"string"},
    int: {"integer", "number"},
    dict: {"object"},
    list: {"array"},
    type(None): {"null"},
}


def _choices(schema: Mapping[str, Any]) -> list[Any]:
    return [*schema.get("anyOf", ()), *schema.get("oneOf", ())]


def _type_of(schema: Mapping[str, Any]) -> str:
    """The type of a schema; the first one that says something, where there are several."""
    kinds = schema.get("type", "object" if "properties" in schema else "")
    return kinds if isinstance(kinds, str) else next((kind for kind in kinds if kind != "null"), "null")
