"""GET /: a page to try the model with, or the user's own files (--path); GET /docs: the API."""

import base64
import hashlib
from functools import cached_property
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route

from unpaced.settings import Settings


def page_routes(settings: Settings) -> list[BaseRoute]:
    """They come last: a folder takes every path that no endpoint has."""
    prefix = settings.api_prefix
    if not settings.ui:
        return []
    if settings.path is not None:
        from starlette.staticfiles import StaticFiles

        return [Mount(f"{prefix}/", StaticFiles(directory=settings.path, html=True))]
    page, docs = _Page("index.html"), _Page("docs.html")
    pages = {"/": page, "/index.html": page, "/docs": docs}
    return [Route(prefix + path, page.answer) for path, page in pages.items()]


class _Page:
    """A page; it needs no key, its requests send the user's. Read when first asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    @cached_property
    def _html(self) -> bytes:
        return files("unpaced").joinpath("page", self._name).read_bytes()

    @cached_property
    def _headers(self) -> dict[str, str]:
        return {
            "etag": f'"{hashlib.sha256(self._html).hexdigest()[:32]}"',
            "cache-control": "no-cache",
            "content-security-policy": _policy(self._html),
            "x-content-type-options": "nosniff",
        }

    async def answer(self, request: Request) -> Response:
        """200, or 304 for who has it."""
        headers, etag = self._headers, self._headers["etag"]
        if request.headers.get("if-none-match") in (etag, f"W/{etag}"):
            return Response(status_code=304, headers=headers)
        return Response(self._html, media_type="text/html; charset=utf-8", headers=headers)


def _policy(html: bytes) -> str:
    """Only the page's own script runs, and it talks to this server alone.

    What a model wrote is shown as text; this is the second lock.
    """
    script = html.partition(b"<script>")[2].partition(b"</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    )
