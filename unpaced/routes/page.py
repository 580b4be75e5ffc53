"""GET /: a page to use the model with, or the user's own files (--path); GET /docs: the API."""

import base64
import hashlib
from functools import cache, cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route

from unpaced.http.middleware import PAGE_FOLDER
from unpaced.settings import Settings

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
# The page's own files alone, from this server alone, and no text becomes HTML or a script: where a
# browser knows trusted types, `innerHTML` throws. The page shows what a model wrote as nodes of
# text; this is the second lock.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)


def page_routes(settings: Settings) -> list[BaseRoute]:
    """They come last: a folder takes every path that no endpoint has."""
    prefix = settings.api_prefix
    if not settings.ui:
        return []
    if settings.path is not None:
        from starlette.staticfiles import StaticFiles

        return [Mount(f"{prefix}/", StaticFiles(directory=settings.path, html=True))]
    names = {"/": "index.html", "/index.html": "index.html", "/docs": "docs.html"}
    routes: list[BaseRoute] = [
        Route(prefix + path, _Named(name).answer) for path, name in names.items()
    ]
    return [*routes, Route(f"{prefix}{PAGE_FOLDER}{{file:path}}", _part)]


class _Named:
    """A page at a path of its own."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def answer(self, request: Request) -> Response:
        """200, or 304 for who has it."""
        return _file(self._name).answer(request)


async def _part(request: Request) -> Response:
    """A script, style or library of the page; 404 for what is none of them."""
    name = request.path_params["file"]
    if name not in _parts():
        raise HTTPException(404)
    return _file(name).answer(request)


class _File:
    """A file of the page; it needs no key, the page's requests send the user's."""

    def __init__(self, name: str) -> None:
        self._name = name

    @cached_property
    def _content(self) -> bytes:
        return files("unpaced").joinpath("page", *self._name.split("/")).read_bytes()

    @cached_property
    def _headers(self) -> dict[str, str]:
        return {
            "etag": f'"{hashlib.sha256(self._content).hexdigest()[:32]}"',
            "cache-control": "no-cache",
            "content-security-policy": _policy(self._content),
            "content-type": _TYPES[PurePosixPath(self._name).suffix],
            "referrer-policy": "no-referrer",
            "x-content-type-options": "nosniff",
        }

    def answer(self, request: Request) -> Response:
        """200, or 304 for who has it."""
        headers, etag = self._headers, self._headers["etag"]
        if request.headers.get("if-none-match") in (etag, f"W/{etag}"):
            return Response(status_code=304, headers=headers)
        return Response(self._content, headers=headers)


@cache
def _file(name: str) -> _File:
    """Read when first asked for; `name` is one of a known few."""
    return _File(name)


@cache
def _parts() -> frozenset[str]:
    """What there is below PAGE_FOLDER; the pages themselves have other paths."""
    root = files("unpaced").joinpath("page")
    return frozenset(name for name in _walk(root, "") if not name.endswith(".html"))


def _walk(folder: Traversable, prefix: str) -> list[str]:
    names: list[str] = []
    for entry in folder.iterdir():
        if entry.is_dir():
            names += _walk(entry, f"{prefix}{entry.name}/")
        elif PurePosixPath(entry.name).suffix in _TYPES:
            names.append(prefix + entry.name)
    return names


def _policy(content: bytes) -> str:
    """For a page that has its script and style within it, they alone are let in."""
    script = content.partition(b"<script>")[2].partition(b"</script>")[0]
    if not script:
        return _POLICY
    digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
    return _POLICY.replace("script-src 'self'", f"script-src 'sha256-{digest}'").replace(
        "style-src 'self'", "style-src 'unsafe-inline'"
    )
