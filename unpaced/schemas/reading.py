"""Typed look-ups in a client's JSON object; a null counts as absent."""

from typing import Any

from unpaced.http.errors import invalid_field
from unpaced.values.json_values import json_type


def text_of(body: dict[str, Any], key: str, where: str = "", default: str | None = None) -> str:
    """A string. Raises: ApiError (400) for another type, or if it is absent without a default."""
    value = body.get(key)
    if value is None:
        value = default
    if not isinstance(value, str):
        raise _wrong(where + key, "string", value)
    return value


def object_of(body: dict[str, Any], key: str, where: str = "") -> dict[str, Any]:
    """An object, empty if absent. Raises: ApiError (400)."""
    value = body.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _wrong(where + key, "object", value)
    return value


def objects_of(body: dict[str, Any], key: str, where: str = "") -> list[dict[str, Any]]:
    """An array of objects, empty if absent. Raises: ApiError (400)."""
    value = body.get(key)
    if value is None:
        return []
    return all_objects(value, where + key)


def all_objects(value: Any, name: str) -> list[dict[str, Any]]:
    """`value`, which must be an array of objects. Raises: ApiError (400)."""
    if not isinstance(value, list):
        raise _wrong(name, "array", value)
    for i, item in enumerate(value):
        if not isinstance(item, dict):
            raise _wrong(f"{name}[{i}]", "object", item)
    return value


def refuse(body: dict[str, Any], key: str, allowed: tuple[Any, ...], reason: str) -> None:
    """Raises: ApiError (400) where `key` is neither absent nor one of `allowed`."""
    value = body.get(key)
    if value is not None and not any(
        value == item and isinstance(value, bool) == isinstance(item, bool) for item in allowed
    ):
        raise invalid_field(key, reason)


def _wrong(name: str, wanted: str, value: Any) -> Exception:
    if value is None:
        return invalid_field(name, "is required")
    return invalid_field(name, f"type must be {wanted}, but is {json_type(value)}")
