"""The OpenAPI document as tests use it: answers and bodies held against its schemas."""

import copy
from collections.abc import Iterator
from typing import Any, Final

from jsonschema import Draft202012Validator

METHODS: Final = ("get", "post", "delete")


class Description:
    """A document that GET /openapi.json answered."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self._strict = _closed(document)

    def operations(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Method, path and what is said of it."""
        for path, methods in self.document["paths"].items():
            for method, operation in methods.items():
                yield method, path, operation

    def answer_faults(
        self, method: str, path: str, status: int, media_type: str, body: Any
    ) -> list[str]:
        """What an answer has that is not described; a stream's body is the list of its events."""
        responses = self.document["paths"][path][method]["responses"]
        if str(status) not in responses:
            return [f"status {status} is not described"]
        content = responses[str(status)].get("content", {})
        if not content:
            return [] if body in (None, b"") else ["a body is not described"]
        kind = media_type.partition(";")[0]
        if kind not in content:
            return [f"{kind} is not described"]
        schema = content[kind]["schema"]
        if kind != "text/event-stream":
            return self.faults(schema, body)
        return [fault for event in body for fault in self.faults(schema["contentSchema"], event)]

    def faults(self, schema: dict[str, Any], value: Any) -> list[str]:
        """Where `value` is not as the schema has it; keys that no schema names are faults too."""
        whole = _closed(schema) | {"components": self._strict["components"]}
        found = Draft202012Validator(whole).iter_errors(value)
        return [f"{error.json_path}: {error.message[:300]}" for error in found]

    def accepts(self, schema: dict[str, Any], value: Any) -> bool:
        """Whether a body's schema has `value`."""
        whole = schema | {"components": self.document["components"]}
        return bool(Draft202012Validator(whole).is_valid(value))

    def body_schema(self, method: str, path: str) -> dict[str, Any] | None:
        """Of a request, looked up; None if it takes none."""
        operation = self.document["paths"][path][method]
        if "requestBody" not in operation:
            return None
        schema: dict[str, Any] = operation["requestBody"]["content"]["application/json"]["schema"]
        name = schema["$ref"].rpartition("/")[2]
        found: dict[str, Any] = self.document["components"]["schemas"][name]
        return found


def _closed(value: Any) -> Any:
    """The same schemas, in which objects have no other keys than those that are named."""
    if isinstance(value, list):
        return [_closed(item) for item in value]
    if not isinstance(value, dict):
        return value
    closed = {key: _closed(item) for key, item in value.items()}
    if closed.get("type") == "object" and isinstance(closed.get("properties"), dict):
        closed.setdefault("additionalProperties", False)
    return copy.copy(closed)
