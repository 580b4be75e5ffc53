"""The OpenAPI document: routes as they are served, what each takes and answers."""

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from unpaced.description import (
    api_answers,
    chat_fields,
    completion_answers,
    errors,
    messages_fields,
    responses_fields,
    server_answers,
)
from unpaced.description.errors import ANTHROPIC_ERROR, ERROR, MEANINGS
from unpaced.description.operations import Operation, operation_of, request_schemas
from unpaced.description.shapes import Schema, either, of_models, reference
from unpaced.http.errors import is_anthropic
from unpaced.http.middleware import ALWAYS, PUBLIC
from unpaced.http.routing import Endpoint, Routes

_PARAMETER: Final = re.compile(r"{(\w+)(?::\w+)?}")
_SECURITY: Final[Mapping[str, Schema]] = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
}
_ABOUT: Final = """\
llama-server's HTTP API, OpenAI's and Anthropic's. Unknown keys of a body are ignored; a null counts
as absent. Bodies are read as JSON whatever Content-Type says. GET is answered to HEAD too, and
OPTIONS as CORS asks. An unknown path or method is 404 with the same error object. Headers that are
too long are 431, ones that do not come in time 408, both without a body."""


def document(groups: Sequence[Routes], prefix: str, *, version: str, has_keys: bool) -> bytes:
    """The document as JSON. `has_keys`: requests need a key.

    FastAPI's model of a document checks it, as it would one of its own.
    """
    from fastapi.openapi.models import OpenAPI

    paths: dict[str, dict[str, Any]] = {}
    for group in groups:
        for endpoint in group.endpoints:
            path = prefix + _PARAMETER.sub(r"{\1}", endpoint.path)
            described = _operation(endpoint, path, group.tag, has_keys=has_keys)
            paths.setdefault(path, {})[endpoint.method.lower()] = described
    whole = {
        "openapi": "3.1.0",
        "info": {"title": "Unpaced", "version": version, "description": _ABOUT},
        "paths": paths,
        "components": {"schemas": _schemas(), "securitySchemes": dict(_SECURITY)},
    }
    OpenAPI.model_validate(whole)
    return orjson.dumps(whole)


def _schemas() -> dict[str, Schema]:
    modules = (
        *(chat_fields, responses_fields, messages_fields),
        *(completion_answers, api_answers, server_answers),
    )
    models = [model for module in modules for model in module.MODELS]
    models += [errors.Error, errors.AnthropicError, errors.FeatureDisabled]
    schemas = of_models(models) | request_schemas()
    for made in (completion_answers, api_answers, server_answers):
        schemas |= made.schemas()
    return schemas


def _operation(endpoint: Endpoint, path: str, tag: str, *, has_keys: bool) -> dict[str, Any]:
    operation = operation_of(endpoint.handler)
    function = getattr(endpoint.handler, "func", endpoint.handler)
    summary, _, more = (inspect.getdoc(function) or "").partition("\n\n")
    described: dict[str, Any] = {
        "tags": [tag],
        "summary": " ".join(summary.split()),
        "operationId": f"{endpoint.method.lower()}{re.sub(r'[^a-z0-9]+', '_', path.lower())}",
        "responses": _responses(operation, endpoint.path),
    }
    if more.strip():
        described["description"] = more.strip()
    parameters = _parameters(endpoint)
    if parameters:
        described["parameters"] = parameters
    if operation.request:
        described["requestBody"] = {
            "required": not operation.is_request_optional,
            "content": {"application/json": {"schema": reference(operation.request)}},
        }
    if endpoint.path not in PUBLIC:
        described["security"] = [{name: []} for name in _SECURITY] + ([] if has_keys else [{}])
    return described


def _parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    places = [(name, "path") for name in _PARAMETER.findall(endpoint.path)]
    places += [(name, "query") for name in endpoint.query]
    return [
        {"name": name, "in": place, "required": place == "path", "schema": {"type": "string"}}
        for name, place in places
    ]


def _responses(operation: Operation, path: str) -> dict[str, Any]:
    statuses = {403, *operation.errors}
    if path not in PUBLIC:
        statuses.add(401)
    if path not in ALWAYS:
        statuses.add(503)
    responses: dict[str, Any] = {}
    if operation.answer is not None or operation.status != 200:
        responses[str(operation.status)] = _answer(operation)
    error = ANTHROPIC_ERROR if is_anthropic(path) else ERROR
    for status in sorted(statuses):
        schema = reference(error)
        meaning = MEANINGS[status]
        if status in operation.errors and status == 403:
            schema = either(schema, reference("FeatureDisabled"))
            meaning += " Or this server does not have it."
        content = {"application/json": {"schema": schema}}
        responses[str(status)] = {"description": meaning, "content": content}
    return responses


def _answer(operation: Operation) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": "What was asked for."}
    if operation.answer is not None:
        answer["content"] = {operation.media_type: {"schema": operation.answer}}
    if operation.events is not None:
        answer["description"] += " With `stream` as server-sent events."
        answer["content"]["text/event-stream"] = {
            "schema": {
                "type": "string",
                "description": "`contentSchema` is the data of each event but a last `[DONE]`.",
                "contentMediaType": "text/event-stream",
                "contentSchema": operation.events,
            }
        }
    if operation.headers:
        answer["headers"] = {
            name: {"description": text, "schema": {"type": "string"}}
            for name, text in operation.headers.items()
        }
    return answer
