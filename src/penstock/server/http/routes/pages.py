"""The dashboard: its page, and the files that it asks for."""

from __future__ import annotations

import hashlib
import mimetypes
from functools import cache
from pathlib import Path
from typing import Any

from litestar import Request, Response, Router, get
from litestar.params import FromPath

from penstock.dashboard import FILES
from penstock.model.errors import MessageNotFound

_TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


@cache
def _files() -> dict[str, Path]:
    """Every file of the dashboard, by its name in addresses: whatever else is asked for is not looked for at all."""
    found = (path for path in FILES.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc"))
    return {path.relative_to(FILES).as_posix(): path for path in found}


@cache
def _content(path: Path) -> tuple[bytes, str, str]:
    """What is in one of the files, its type and its tag."""
    content = path.read_bytes()
    kind = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return content, kind, f'"{hashlib.sha256(content).hexdigest()[:20]}"'


def serve_file(request: Request[Any, Any, Any], name: str) -> Response[bytes]:
    """A file of the dashboard, unless the browser has it already."""
    path = _files().get(name)
    if path is None:
        raise MessageNotFound(f"the dashboard has no file {name!r:.80}")
    content, kind, tag = _content(path)
    headers = {"etag": tag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(b"", status_code=304, headers=headers, media_type=kind)
    return Response(content, headers=headers, media_type=kind)


@get("/", include_in_schema=False)
async def dashboard(request: Request[Any, Any, Any]) -> Response[bytes]:
    """The dashboard."""
    return serve_file(request, "index.html")


@get("/favicon.ico", include_in_schema=False)
async def icon(request: Request[Any, Any, Any]) -> Response[bytes]:
    """The icon of the dashboard."""
    return serve_file(request, "icon.svg")


@get("/ui/{name:path}", include_in_schema=False)
async def dashboard_file(request: Request[Any, Any, Any], name: FromPath[str]) -> Response[bytes]:
    """A file of the dashboard."""
    return serve_file(request, name.lstrip("/"))


ROUTES = Router("/", route_handlers=[dashboard, icon, dashboard_file])
