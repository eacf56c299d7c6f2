"""The page that shows the API, and the description (OpenAPI) that it shows."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, Router, get
from litestar.enums import MediaType

from penstock.server.http.caller import Caller
from penstock.server.http.description import description
from penstock.server.http.routes.pages import serve_file


@get("/", include_in_schema=False)
async def page(request: Request[Any, Any, Any]) -> Response[bytes]:
    """The page."""
    return serve_file(request, "docs/index.html")


@get("/openapi.json", include_in_schema=False)
async def openapi(caller: Caller) -> Response[bytes]:
    """The description, which takes a while to make: the loop goes on meanwhile."""
    return Response(await caller.services.workers.run(description, slow=True), media_type=MediaType.JSON)


ROUTES = Router("/docs", route_handlers=[page, openapi])
