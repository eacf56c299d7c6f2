"""How routes are described: the errors and bodies that they answer with, and schemas with a text for each field."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, get_args

import msgspec
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Example, OpenAPIMediaType, Operation, Parameter, RequestBody, Schema
from litestar.openapi.spec.enums import OpenAPIFormat, OpenAPIType

from penstock.server.http.failures import Problem
from penstock.server.http.vocabulary import MEANINGS
from penstock.server.settings.writing import field_texts

REFERENCE = "#/components/schemas/"
_ERRORS = {
    400: "what was sent cannot be accepted as it is",
    401: "a token is needed, and none was given or it is not valid",
    403: "the token is not for this",
    404: "there is no such thing",
    405: "not this method",
    409: "it is there already, in use, or not in the state that this needs",
    410: "the receipt holds nothing (any more)",
    413: "too large",
    415: "not this type of content",
    429: "too many requests, or a full buffer: try again after Retry-After",
    503: "the server is stopping, or its disk has failed",
    507: "the server's disk is full",
}
Answers = Mapping[int, ResponseSpec]
_JSON, _RAW = "application/json", "application/octet-stream"
_ALWAYS = (400, 401, 403, 404, 413, 429, 503)


def errors(*codes: int) -> Answers:
    """The errors that a route may answer with, beside those that every route may."""
    return {
        code: ResponseSpec(Problem, description=_ERRORS[code], generate_examples=False)
        for code in sorted({*_ALWAYS, *codes})
    }


def answers(body: type[Any] | None, description: str, *codes: int, status: int = 200, media: str = _JSON) -> Answers:
    """What a route answers with, where its signature does not say it, and its errors."""
    answer = ResponseSpec(body, description=description, media_type=media, generate_examples=False)
    return {**errors(*codes), status: answer}


def json_body(body: type[Any], *examples: Any, raw: bool = False) -> RequestBody:
    """The body of a route that reads it by hand; with `raw`, bytes as they are will do too."""
    components = schemas_of([body])
    media = OpenAPIMediaType(
        schema=inlined(components[body.__name__], components),
        examples={f"example {number}": Example(value=value) for number, value in enumerate(examples, 1)},
    )
    content = {_JSON: media}
    if raw:
        content[_RAW] = OpenAPIMediaType(schema=_octets())
    return RequestBody(content=content, required=True)


def body_of(body: type[Any], *examples: Any) -> type[Operation]:
    """The description of a route whose body is this, with every limit that is checked, and examples."""
    return _described(lambda: json_body(body, *examples))


def raw_body(description: str) -> type[Operation]:
    """The description of a route whose body is taken as it is."""
    content = {_RAW: OpenAPIMediaType(schema=_octets(), example="two coffees")}
    return _described(lambda: RequestBody(content=content, description=description))


def _described(body: Callable[[], RequestBody]) -> type[Operation]:
    @dataclass
    class Described(Operation):
        def __post_init__(self) -> None:
            self.request_body = body()

    return Described


def _octets() -> Schema:
    return Schema(type=OpenAPIType.STRING, format=OpenAPIFormat.BINARY)


def query_of(body: type[Any], *names: str) -> list[Parameter]:
    """Fields of a body as parameters, for when the body itself is sent raw."""
    fields = schemas_of([body])[body.__name__]["properties"]
    return [
        Parameter(
            name=name,
            param_in="query",
            schema=fields[name],
            description=f"With a raw body. {fields[name].get('description', '')}".strip(),
        )
        for name in names
    ]


# Schemas.


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
        if kind.__module__.startswith(("penstock.server.", "penstock.model.")):
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
