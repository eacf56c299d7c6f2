"""The page that shows the API, and the description (OpenAPI) that it shows: of all `routes`, and so beside them."""

from __future__ import annotations

import asyncio
from typing import Any

from litestar import Request, Response, Router, get
from litestar.enums import MediaType

from penstock.server.http.caller import Caller
from penstock.server.http.description import description
from penstock.server.http.routes.pages import serve_file

_MAKING = "penstock_description"
"""Where the application keeps the one task that makes the description."""


@get("/", include_in_schema=False)
async def page(request: Request[Any, Any, Any]) -> Response[bytes]:
    """The page."""
    return serve_file(request, "docs/index.html")


@get("/openapi.json", include_in_schema=False)
async def openapi(request: Request[Any, Any, Any], caller: Caller) -> Response[bytes]:
    """The description, which takes a while to make: the first who asks has it made, and the others wait for that."""
    state = request.app.state
    making: asyncio.Task[bytes] | None = state.get(_MAKING)
    if making is None or (making.done() and (making.cancelled() or making.exception() is not None)):
        making = asyncio.create_task(caller.services.workers.run(description, slow=True))
        state[_MAKING] = making
    return Response(await asyncio.shield(making), media_type=MediaType.JSON)


ROUTES = Router("/docs", route_handlers=[page, openapi])
