"""Random JSON schemas that a short text can satisfy."""

import random
from collections.abc import Callable
from typing import Any

_NAMES = ("a", "b", "name", "x y", "é", "n1")


def random_schema(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    """A schema of what most clients use."""
    makers: list[Callable[[random.Random, int], dict[str, Any]]] = [
        _string,
        _integer,
        _number,
        _enum,
        _const,
        _plain,
    ]
    if depth < 3:
        makers += [_object, _object, _array, _union]
    return rng.choice(makers)(rng, depth)


def _string(rng: random.Random, _: int) -> dict[str, Any]:
    low = rng.randrange(4)
    return rng.choice(
        [
            {"type": "string", "minLength": low, "maxLength": low + rng.randrange(6)},
            {"type": "string", "pattern": "^[a-c]{2,5}$"},
            {"type": "string", "pattern": "^(yes|no|[0-9]+-x)$", "maxLength": 12},
            {"type": "string", "format": "date"},
            {"type": "string", "format": "uuid"},
        ]
    )


def _integer(rng: random.Random, _: int) -> dict[str, Any]:
    low = rng.randrange(-50, 50)
    return {"type": "integer", "minimum": low, "maximum": low + rng.randrange(1000)}


def _number(rng: random.Random, _: int) -> dict[str, Any]:
    return {"type": "number", "exclusiveMinimum": rng.randrange(-5, 0), "maximum": 7.5}


def _enum(rng: random.Random, _: int) -> dict[str, Any]:
    return {"enum": rng.sample(["red", 1, None, True, "bl\\ue", [1, "x"], {"k": 2.5}], 3)}


def _const(rng: random.Random, _: int) -> dict[str, Any]:
    return {"const": rng.choice(["42", 42, {"a": ["b"]}, '\n"', None])}


def _plain(rng: random.Random, _: int) -> dict[str, Any]:
    return {"type": rng.choice(["boolean", "null", ["boolean", "integer"]])}


def _object(rng: random.Random, depth: int) -> dict[str, Any]:
    names = rng.sample(_NAMES, rng.randrange(1, 4))
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: random_schema(rng, depth + 1) for name in names},
        "required": rng.sample(names, rng.randrange(len(names) + 1)),
    }
    schema["additionalProperties"] = rng.choice([False, False, {"type": "null"}])
    return schema


def _array(rng: random.Random, depth: int) -> dict[str, Any]:
    low = rng.randrange(3)
    items = random_schema(rng, depth + 1)
    return {"type": "array", "items": items, "minItems": low, "maxItems": low + rng.randrange(3)}


def _union(rng: random.Random, depth: int) -> dict[str, Any]:
    return {"anyOf": [random_schema(rng, depth + 1) for _ in range(2)]}
