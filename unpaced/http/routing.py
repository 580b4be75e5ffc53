"""Which handler answers which path: listed beside the handlers, served by Starlette.

A handler takes the request and makes the response, so nothing of FastAPI is needed to call it; its
import alone would be a quarter of a start. `unpaced.description` says what they take and answer.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One method of one path. `query`: parameters behind the question mark, all of them optional
    text."""

    method: str
    path: str
    handler: Handler
    query: tuple[str, ...]


class Routes:
    """A group of endpoints; `get`, `post` and `delete` are decorators."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.endpoints: list[Endpoint] = []

    def get(self, path: str, *, query: tuple[str, ...] = ()) -> Callable[[Handler], Handler]:
        """GET, and HEAD."""
        return self._add("GET", path, query)

    def post(self, path: str, *, query: tuple[str, ...] = ()) -> Callable[[Handler], Handler]:
        """POST."""
        return self._add("POST", path, query)

    def delete(self, path: str, *, query: tuple[str, ...] = ()) -> Callable[[Handler], Handler]:
        """DELETE."""
        return self._add("DELETE", path, query)

    def _add(self, method: str, path: str, query: tuple[str, ...]) -> Callable[[Handler], Handler]:
        def add(handler: Handler) -> Handler:
            self.endpoints.append(Endpoint(method, path, handler, query))
            return handler

        return add

    def served(self, prefix: str) -> list[Route]:
        """For the application's router, `prefix` in front of every path."""
        return [
            Route(prefix + endpoint.path, endpoint.handler, methods=[endpoint.method])
            for endpoint in self.endpoints
        ]
