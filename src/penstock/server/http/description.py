"""The description of the API (OpenAPI), as the framework makes it and as it is made readable here; and its page."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from litestar import Litestar, Request, Response, Router, get
from litestar.enums import MediaType
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.spec import Components, License, SecurityScheme, Tag
from litestar.serialization import encode_json

from penstock.server.http.caller import Caller, caller_given
from penstock.server.http.documenting import schemas_of, structs
from penstock.server.http.examples import Examples
from penstock.server.http.front import is_open
from penstock.server.http.routes import ROUTES, TAGS
from penstock.server.http.routes.pages import serve_file
from penstock.server.http.vocabulary import MEANINGS
from penstock.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litestar.handlers import HTTPRouteHandler
    from litestar.types import Method

_ABOUT = """A durable message queue: a replayable log with per-message leases, priorities and delays.

Values are UTF-8 text, or base64 where `encoding` says so. Errors are `{"error", "status", "hint"}`. Where the server
asks for tokens, send `Authorization: Bearer <token>`. Durations are seconds, or text such as `30s`; times are ISO 8601.

There is a WebSocket, too: `/v1/topics/{topic}/ws?group=…` sends messages and takes
`{"type": "ack", "receipt_handle": …}`."""
_JSON = "application/json"
_MAKING = "penstock_description"
"""Where the application keeps the one task that makes the description."""
_METHODS = ("get", "post", "put", "patch", "delete")


def name_operation(handler: HTTPRouteHandler, method: Method, path: list[Any]) -> str:
    """A name that no other operation has; `describe` makes it short."""
    return f"{handler.handler_name} {method} {'/'.join(map(str, path))}"


@cache
def description() -> bytes:
    """The description as JSON, which is the same in every server of this version."""
    config = OpenAPIConfig(
        title="Penstock",
        version=__version__,
        description=_ABOUT,
        license=License("Apache-2.0", identifier="Apache-2.0"),
        tags=[Tag(name, text) for name, text in TAGS.items()],
        components=Components(security_schemes={"token": SecurityScheme("http", scheme="bearer")}),
        use_handler_docstrings=True,
        operation_id_creator=name_operation,
    )
    app = Litestar(route_handlers=list(ROUTES), openapi_config=config, logging_config=None, **caller_given())
    document = app.openapi_schema.to_schema()
    describe(document)
    return encode_json(document)


def describe(document: dict[str, Any]) -> None:
    """Make a description of the framework's read well: names, summaries, schemas, examples, who needs a token."""
    schemas = document["components"].setdefault("schemas", {})
    # with all that their types say, which the framework leaves out in part
    schemas.update(schemas_of([kind for kind in structs() if kind.__name__ in schemas]))
    examples = Examples(schemas)
    names = Counter(operation["operationId"].split()[0] for _, operation in _operations(document))
    for path, operation in _operations(document):
        name = operation["operationId"].split()[0]
        operation["operationId"] = name if names[name] == 1 else path.strip("/").replace("/", "_")
        summary, _, rest = operation.get("description", "").partition("\n")
        operation["summary"] = summary.rstrip(".")
        operation["description"] = rest.strip()
        operation["security"] = [] if is_open(path) else [{"token": []}]
        _give_examples(operation, examples)


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method in _METHODS:
            if method in item:
                yield path, item[method]


def _give_examples(operation: dict[str, Any], examples: Examples) -> None:
    for parameter in operation.get("parameters", ()):
        if not parameter.get("description"):
            parameter["description"] = MEANINGS.get(parameter["name"], "")
        if parameter.get("required") and not parameter.get("examples"):
            parameter["example"] = examples.of(parameter["schema"], parameter["name"])
    body = operation.get("requestBody", {}).get("content", {}).get(_JSON)
    if body is not None and not body.get("examples"):
        body["examples"] = {"example": {"value": examples.of(body["schema"], whole=False)}}
    for status, response in operation["responses"].items():
        if status == "204":
            response.pop("content", None)  # it has no body, whatever the framework thinks
        media = response.get("content", {}).get(_JSON)
        if response["description"] == HTTPStatus(int(status)).description:
            response["description"] = examples.description(media["schema"]) if media else "It is done."
        if media is not None and status.startswith("2") and not media.get("examples"):
            media["examples"] = {"example": {"value": examples.of(media["schema"])}}


@get("/", include_in_schema=False)
async def page(request: Request[Any, Any, Any]) -> Response[bytes]:
    """The page that shows the description."""
    return serve_file(request, "docs/index.html")


@get("/openapi.json", include_in_schema=False)
async def openapi(request: Request[Any, Any, Any], caller: Caller) -> Response[bytes]:
    """The description, which takes a while to make: the first request starts that, and the others wait for it."""
    state = request.app.state
    making: asyncio.Task[bytes] | None = state.get(_MAKING)
    if making is None or (making.done() and (making.cancelled() or making.exception() is not None)):
        making = asyncio.create_task(caller.services.workers.run(description, slow=True))
        state[_MAKING] = making
    return Response(await asyncio.shield(making), media_type=MediaType.JSON)


DOCS = Router("/docs", route_handlers=[page, openapi])
