"""Which handler answers which path: listed beside the handlers, served by Starlette.

A handler takes the request and makes the response, so nothing of FastAPI is needed to call it; its
import alone would be a quarter of a start. It describes the routes when somebody asks (`openapi`).
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

if TYPE_CHECKING:
    from pydantic import BaseModel

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One method of one path, and what is said of it beyond the handler's docstring.

    `errors`: statuses and when they come. `body`: the fields of a JSON body. `query`: parameters
    behind the question mark, all of them optional text.
    """

    method: str
    path: str
    handler: Handler
    errors: Mapping[int, str]
    body: "type[BaseModel] | None"
    query: tuple[str, ...]


class Routes:
    """A group of endpoints; `get`, `post` and `delete` are decorators."""

    def __init__(self, tag: str, errors: Mapping[int, str] | None = None) -> None:
        self.tag = tag
        self.endpoints: list[Endpoint] = []
        self._errors = errors or {}

    def get(self, path: str, *, query: tuple[str, ...] = ()) -> Callable[[Handler], Handler]:
        """GET, and HEAD."""
        return self._add("GET", path, query=query)

    def post(
        self,
        path: str,
        *,
        query: tuple[str, ...] = (),
        body: "type[BaseModel] | None" = None,
    ) -> Callable[[Handler], Handler]:
        """POST."""
        return self._add("POST", path, query=query, body=body)

    def delete(self, path: str, *, query: tuple[str, ...] = ()) -> Callable[[Handler], Handler]:
        """DELETE."""
        return self._add("DELETE", path, query=query)

    def _add(
        self,
        method: str,
        path: str,
        *,
        query: tuple[str, ...],
        body: "type[BaseModel] | None" = None,
    ) -> Callable[[Handler], Handler]:
        def add(handler: Handler) -> Handler:
            self.endpoints.append(Endpoint(method, path, handler, self._errors, body, query))
            return handler

        return add

    def served(self, prefix: str) -> list[Route]:
        """For the application's router, `prefix` in front of every path."""
        return [
            Route(prefix + endpoint.path, endpoint.handler, methods=[endpoint.method])
            for endpoint in self.endpoints
        ]
