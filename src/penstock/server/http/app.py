"""The routes as one application, with one shape for all errors."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from litestar import Litestar, Request, Response
from litestar.enums import MediaType
from litestar.exceptions import HTTPException

from penstock.model.errors import InvalidArgument
from penstock.server.http.caller import caller_given
from penstock.server.http.description import DOCS
from penstock.server.http.failures import Problem, encode, headers_of, problem_of
from penstock.server.http.routes import ROUTES

if TYPE_CHECKING:
    from penstock.server.services import Services

_log = logging.getLogger("penstock.server")
_CLIENT_GONE = "client disconnected prematurely"
"""In the framework's words; nobody hears the reply."""


class JsonRequest(Request[Any, Any, Any]):
    """A request whose body is refused, and is no failure of ours, when it is not JSON at all."""

    async def json(self) -> Any:
        try:
            return await super().json()
        except (UnicodeDecodeError, RecursionError) as error:  # the framework takes care of the others
            raise InvalidArgument(f"the body: {error}") from error


def build_app(services: Services) -> Litestar:
    """The application of one server."""
    return Litestar(
        route_handlers=[*ROUTES, DOCS],
        **caller_given(),
        request_class=JsonRequest,
        exception_handlers={HTTPException: _refuse_request, Exception: _refuse},
        openapi_config=None,  # see `http.description`
        request_max_body_size=None,
        logging_config=None,
        debug=False,
    )


def _refuse(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    problem = problem_of(error)
    if problem.status == 500:
        _log.exception("a request failed", exc_info=error, extra={"path": request.url.path})
    return _reply(problem, error)


def _refuse_request(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """What the framework found wrong, in our words."""
    status = error.status_code
    if status == 404:
        return _reply(Problem(f"there is nothing at {request.url.path!r:.200}", 404, "see /docs"), error)
    if status == 405:
        text = f"{request.method} is not possible at {request.url.path!r:.200}"
        return _reply(Problem(text, 405, "see /docs for the methods"), error)
    details = [
        ": ".join(str(item[name]) for name in ("key", "message") if item.get(name))
        for item in (error.extra if isinstance(error.extra, list) else [])
        if isinstance(item, dict)
    ]
    text = "; ".join(details) or error.detail
    if status >= 500 and error.detail != _CLIENT_GONE:
        _log.error("a request failed: %s", text)
    return _reply(Problem(text, status, "see /docs for what is allowed"), error)


def _reply(problem: Problem, error: BaseException) -> Response[bytes]:
    extra = dict(getattr(error, "headers", None) or {})
    headers = {name.decode(): value.decode() for name, value in headers_of(error, problem.status)}
    return Response(
        encode(problem), status_code=problem.status, media_type=MediaType.JSON, headers={**extra, **headers}
    )
