"""GET /: a page to try the model with, or the user's own files (--path)."""

import base64
import hashlib
from importlib.resources import files

from fastapi import APIRouter, FastAPI, Request, Response
from starlette.staticfiles import StaticFiles

from server.settings import Settings


def add_page(app: FastAPI, settings: Settings) -> None:
    """Register it last: a folder takes every path that no endpoint has."""
    if not settings.ui:
        return
    if settings.path is not None:
        app.mount(f"{settings.api_prefix}/", StaticFiles(directory=settings.path, html=True))
        return
    app.include_router(_page_router(), prefix=settings.api_prefix)


def _page_router() -> APIRouter:
    html = files("server").joinpath("page", "index.html").read_bytes()
    etag = f'"{hashlib.sha256(html).hexdigest()[:32]}"'
    headers = {
        "etag": etag,
        "cache-control": "no-cache",
        "content-security-policy": _policy(html),
        "x-content-type-options": "nosniff",
    }
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    @router.get("/index.html")
    async def page(request: Request) -> Response:
        """The page; it needs no key, its requests send the user's."""
        if request.headers.get("if-none-match") in (etag, f"W/{etag}"):
            return Response(status_code=304, headers=headers)
        return Response(html, media_type="text/html; charset=utf-8", headers=headers)

    return router


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
