"""Who is at the other end: logging in to the dashboard, and out."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Request, Response, Router, get, post
from litestar.datastructures import Cookie
from litestar.params import JSONBody
from msgspec import Meta

from penstock.server.access.principal import Principal
from penstock.server.http.caller import Caller
from penstock.server.http.documenting import errors
from penstock.server.http.front import COOKIE


class Login(msgspec.Struct, forbid_unknown_fields=True):
    """A token, as `penstock token create` gave it."""

    token: Annotated[str, Meta(min_length=1, max_length=500)]


class WhoAmI(msgspec.Struct):
    """Who a token is, and what it is for."""

    name: str
    scopes: list[str]
    topics: list[str]
    auth: str
    """`tokens` where the server asks for them, or `off`."""


@post("/login", status_code=200, responses=errors())
async def log_in(request: Request[Any, Any, Any], caller: Caller, data: JSONBody[Login]) -> Response[WhoAmI]:
    """Have a browser send a token with every request, as a cookie that pages cannot read."""
    if caller.services.config.auth == "off":
        return Response(_who(caller, caller.principal))
    principal = caller.services.access.authenticate(data.token)
    return Response(_who(caller, principal), cookies=[_cookie(request, data.token)])


@post("/logout", status_code=204, responses=errors())
async def log_out(request: Request[Any, Any, Any]) -> Response[None]:
    """Have a browser forget the token."""
    return Response(None, status_code=204, cookies=[_cookie(request, "", max_age=0)])


@get("/whoami", responses=errors())
async def who_am_i(caller: Caller) -> WhoAmI:
    """Who the token of this request is, and what it is for."""
    return _who(caller, caller.principal)


def _who(caller: Caller, principal: Principal) -> WhoAmI:
    return WhoAmI(principal.name, sorted(principal.scopes), list(principal.topics), caller.services.config.auth)


def _cookie(request: Request[Any, Any, Any], value: str, max_age: int | None = None) -> Cookie:
    secure = request.scope["scheme"] == "https"
    return Cookie(
        COOKIE.decode(), value=value, path="/", max_age=max_age, httponly=True, samesite="strict", secure=secure
    )


ROUTES = Router("/v1", route_handlers=[log_in, log_out, who_am_i], tags=["access"])
