"""Objects of a JSON schema hold the properties that it names, as llama-server reads schemas.

JSON Schema lets properties come that a schema does not mention; people who ask a model for an
object mean those that they list, and models go on inventing others. So an object schema that has
`properties` and says nothing of `additionalProperties` is closed; one that says something is left
alone. Where schemas hold together (`allOf`, `$ref` or `anyOf` beside other keywords) a property
that one of them names may come for all: closing each by itself would leave nothing that fits.
Required properties come first, then the others, both as they are listed. A schema without `type`
is of the type that its keywords are about, and an array whose items are listed one by one has
exactly these.

Whatever the result accepts, the schema as it was accepts too.
Source: llama.cpp 0c1e57098 common/json-schema.cpp:150-310, common/json-schema-to-grammar.cpp.
"""

import re
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

_ALTERNATIVES: Final = ("anyOf", "oneOf")
_COMBINING: Final = ("$ref", "allOf", *_ALTERNATIVES)
_ANNOTATIONS: Final = frozenset(
    (
        *("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"),
        *("discriminator", "x-guidance", "$id", "$schema", "$comment", "$defs", "definitions"),
    )
)
_IMPLIED_TYPES: Final = (
    ("object", ("properties", "additionalProperties")),
    ("array", ("items", "prefixItems")),
    ("string", ("pattern", "minLength", "maxLength", "format")),
)
_MAX_LOOKS: Final = 100_000
_INDEX: Final = re.compile("[0-9]{1,9}")

Schema = dict[str, Any]


class TooCombined(ValueError):
    """Schemas that refer to one another so often that looking through them takes too long."""


@dataclass(slots=True)
class _Group:
    """What schemas that hold together say of one object.

    `names`: every property; `lists`: some schema has `properties`; `is_open`: one says what else
    may come, or cannot be looked into; `is_typed`: one says what kind of value it is.
    """

    names: dict[str, None] = field(default_factory=dict)
    required: set[str] = field(default_factory=set)
    lists: bool = False
    is_open: bool = False
    is_typed: bool = False

    def add(self, other: "_Group") -> None:
        self.names |= other.names
        self.required |= other.required
        self.lists |= other.lists
        self.is_open |= other.is_open
        self.is_typed |= other.is_typed


def close_objects(schema: Schema) -> Schema:
    """The schema with its objects closed. Raises: TooCombined."""
    closed: Schema = _Closing(schema).close(schema)
    return closed


class _Closing:
    def __init__(self, root: Schema) -> None:
        self._root = root
        self._n_looks = 0
        self._inside: list[str] = []  # the references that are being copied

    def close(self, schema: Any) -> Any:
        """A schema that stands for itself."""
        self._look()
        if not isinstance(schema, dict):
            return schema
        combining = [key for key in _COMBINING if key in schema]
        if not combining:
            schema = _tuple(_typed(schema))
            return self._member(schema, _Group(), self._gather(schema, []), closes=True)
        others = [key for key in schema if key not in _ANNOTATIONS and key not in combining]
        is_one = combining != ["allOf"] or _length(schema["allOf"]) == 1
        if len(combining) == 1 and not others and is_one:
            return self._children(schema, self.close)
        group = self._gather(schema, [])
        if group.lists and not group.is_typed:
            schema = {"type": "object"} | schema
        return self._member(schema, _Group(), group, closes=group.lists and not group.is_open)

    def _member(self, schema: Any, around: _Group, whole: _Group, *, closes: bool) -> Any:
        """A schema that holds together with those of which `around` tells; `whole`: with all."""
        self._look()
        if not isinstance(schema, dict):
            return schema
        reference = schema.get("$ref")
        if closes and isinstance(reference, str) and self._gather(schema, []).lists:
            copied = {key: value for key, value in schema.items() if key != "$ref"}
            members = copied.get("allOf")
            members = members if isinstance(members, list) else []
            copied["allOf"] = [*members, self._target(reference)]
            self._inside.append(reference)
            closed = self._member(copied, around, whole, closes=True)
            self._inside.pop()
            return closed
        closed = self._children(schema, self.close, skip=_COMBINING)
        for key in ("allOf", *_ALTERNATIVES):
            parts = schema.get(key)
            if not isinstance(parts, list):
                continue
            rest = {name: value for name, value in schema.items() if name != key}
            members = []
            for i, part in enumerate(parts):
                beside = _Group()
                beside.add(around)
                beside.add(self._gather(rest, []))
                if key == "allOf":
                    for other in parts[:i] + parts[i + 1 :]:
                        beside.add(self._gather(other, []))
                members.append(self._member(part, beside, whole, closes=closes))
            closed[key] = members
        total = self._gather(schema, [])
        total.add(around)
        if closes and total.lists and not any(key in schema for key in _ALTERNATIVES):
            return _closed(closed, total, list(whole.names))
        return closed

    def _children(self, schema: Schema, each: Any, skip: tuple[str, ...] = ()) -> Schema:
        """The schema with `each` applied to the schemas that it is about."""
        made: Schema = {}
        for key, value in schema.items():
            if key in skip:
                made[key] = value
            elif key in ("properties", "patternProperties", "$defs", "definitions"):
                is_map = isinstance(value, dict)
                made[key] = {k: self.close(v) for k, v in value.items()} if is_map else value
            elif key in ("items", "prefixItems", "additionalProperties", "allOf", *_ALTERNATIVES):
                is_list = isinstance(value, list)
                made[key] = [each(item) for item in value] if is_list else each(value)
            else:
                made[key] = value
        return made

    def _gather(self, schema: Any, seen: list[str]) -> _Group:
        """What the schema and those that it combines say; `seen`: references on the way here."""
        self._look()
        group = _Group()
        if not isinstance(schema, dict):
            return group
        properties, required = schema.get("properties"), schema.get("required")
        if isinstance(properties, dict):
            group.lists = True
            group.names |= dict.fromkeys(properties)
        if isinstance(required, list):
            group.required |= {name for name in required if isinstance(name, str)}
        group.is_open = schema.get("additionalProperties", False) is not False
        group.is_typed = any(key in schema for key in ("type", "enum", "const"))
        for key in ("allOf", *_ALTERNATIVES):
            parts = schema.get(key)
            for part in parts if isinstance(parts, list) else ():
                found = self._gather(part, seen)
                if key != "allOf":
                    found.required = set()  # of some answers only
                group.add(found)
        reference = schema.get("$ref")
        if reference is not None:
            target = self._target(reference)
            if reference in (*seen, *self._inside) or not isinstance(target, dict):
                group.is_open = True
            else:
                group.add(self._gather(target, [*seen, reference]))
        group.names |= dict.fromkeys(sorted(group.required - set(group.names)))
        return group

    def _look(self) -> None:
        self._n_looks += 1
        if self._n_looks > _MAX_LOOKS:
            raise TooCombined("too many schemas refer to one another or are combined")

    def _target(self, reference: Any) -> Any:
        """What a reference into the same schema points at; None if there is nothing."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        found: Any = self._root
        for step in reference[1:].split("/")[1:]:
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict):
                found = found.get(name)
            elif isinstance(found, list) and _INDEX.fullmatch(name) and int(name) < len(found):
                found = found[int(name)]
            else:
                return None
        return found


def _typed(schema: Schema) -> Schema:
    if any(key in schema for key in ("type", "enum", "const")):
        return schema
    for name, keys in _IMPLIED_TYPES:
        if any(schema.get(key, True) is not True for key in keys):
            return {"type": name} | schema
    return schema


def _tuple(schema: Schema) -> Schema:
    """A list of schemas is one of the whole array, unless something says how long it may be."""
    key, rest = ("items", "additionalItems") if "items" in schema else ("prefixItems", "items")
    parts = schema.get(key)
    if not isinstance(parts, list) or any(
        said in schema for said in (rest, "minItems", "maxItems")
    ):
        return schema
    return schema | {rest: False, "minItems": len(parts)}


def _closed(schema: Schema, group: _Group, order: list[str]) -> Schema:
    """The schema with all of the group's properties and no others, unless it says so itself."""
    if "enum" in schema or "const" in schema or not _may_be_object(schema.get("type")):
        return schema
    own = schema.get("properties")
    own = own if isinstance(own, dict) else {}
    says = "additionalProperties" in schema
    names = [name for name in order if name in (own if says else group.names)]
    names.sort(key=lambda name: name not in group.required)  # stable
    closed = schema | {"properties": {name: own.get(name, {}) for name in names}}
    return closed if says else closed | {"additionalProperties": False}


def _may_be_object(kind: Any) -> bool:
    return kind is None or kind == "object" or (isinstance(kind, list) and "object" in kind)


def _length(value: Any) -> int:
    return len(value) if isinstance(value, list) else 0
