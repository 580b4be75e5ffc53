"""The fields of a completion's body: from the model that checks them."""

from typing import Any, Final

from unpaced.description.shapes import Schema, array_of, either, nullable
from unpaced.schemas.completion import ALIASES, CompletionBody
from unpaced.schemas.sampling import SamplingFields
from unpaced.settings import Settings
from unpaced.settings.options.option import option_of

_STRING: Final[Schema] = {"type": "string"}
_TOKEN: Final[Schema] = {"type": "integer", "minimum": 0, "description": "a token's id"}
_MIXED: Final[Schema] = array_of(either(_STRING, _TOKEN))
_PROMPT_OBJECT: Final[Schema] = {
    "type": "object",
    "properties": {"prompt_string": either(_STRING, _MIXED)},
    "required": ["prompt_string"],
}
_ONE_PROMPT: Final[Schema] = either(_STRING, _MIXED, _PROMPT_OBJECT)

PROMPT: Final[Schema] = either(_STRING, _MIXED, _PROMPT_OBJECT, array_of(_ONE_PROMPT)) | {
    "description": "text, token ids, both mixed, or a list of several prompts"
}
JSON_SCHEMA: Final[Schema] = {
    "type": ["object", "boolean"],
    "description": "a JSON schema; docs/structured-output.md says what of it is held",
}
RESPONSE_FORMAT: Final[Schema] = {
    "type": "object",
    "properties": {
        "type": {"enum": ["text", "json_object", "json_schema", "", None]},
        "schema": {"description": "of json_object: a JSON schema"},
        "json_schema": {
            "type": ["object", "null"],
            "properties": {"schema": {"description": "a JSON schema"}},
        },
    },
}
_BIAS: Final[Schema] = {"type": ["number", "boolean"], "description": "false bans the token"}
# What the model leaves open since other code checks it.
_CHECKED_ELSEWHERE: Final[dict[str, Schema]] = {
    "prompt": PROMPT,
    "json_schema": nullable(JSON_SCHEMA),
    "response_format": nullable(RESPONSE_FORMAT),
    "stream_options": nullable(
        {"type": "object", "properties": {"include_usage": {"type": ["boolean", "null"]}}}
    ),
    "logit_bias": nullable(
        either(
            {"type": "object", "additionalProperties": _BIAS},
            array_of({"type": "array", "minItems": 2, "maxItems": 2}),
        )
    )
    | {"description": "by token id or text: an object, or a list of [id or text, bias]"},
    "grammar_triggers": nullable(
        {"type": "array", "items": {"type": "object", "required": ["type"]}}
    ),
}
_EXPLAINED: Final = {
    "priority": "vLLM's: of one client's requests that wait for a slot the lower one is earlier; "
    "left out: 0; docs/slots.md has the rule",
}
_INTERNAL: Final = frozenset({"legacy_logprobs", "unknown_samplers"})
"""Set while a body is parsed, whatever it says."""


def completion_fields() -> dict[str, Schema]:
    """Of /completion, /completions and /v1/completions, under every name that they have."""
    return _fields_of(CompletionBody)


def _fields_of(model: type[SamplingFields]) -> dict[str, Schema]:
    found: dict[str, Any] = model.model_json_schema()["properties"]
    fields = {name: _field(name, schema) for name, schema in found.items() if name not in _INTERNAL}
    for name, aliases in ALIASES.items():
        if name in fields:
            for alias in aliases:
                fields[alias] = fields[name] | ({} if alias == name else _same_as(aliases))
    return fields


def _field(name: str, schema: Schema) -> Schema:
    if name in _CHECKED_ELSEWHERE:
        return _CHECKED_ELSEWHERE[name]
    kept = {key: value for key, value in schema.items() if key not in ("title", "default")}
    if name in _EXPLAINED:
        kept["description"] = _EXPLAINED[name]
    info = Settings.model_fields.get(name)
    if info is not None and "description" not in kept:
        option = option_of(info)
        if "-1" not in option.help:  # a flag's word for what a request leaves out
            kept["description"] = f"{option.help}; left out: what {option.name} says"
    return kept


def _same_as(aliases: tuple[str, ...]) -> Schema:
    return {"description": f"one of {', '.join(aliases)}: the first that is there counts"}
