"""The fields of a request that say what its text must be."""

from typing import TYPE_CHECKING, Any, Final

from engine_ext import GrammarTrigger
from unpaced.grammar.spec import ANY_OBJECT, GrammarSpec
from unpaced.http.errors import invalid, invalid_field
from unpaced.values.json_values import json_type

if TYPE_CHECKING:
    from engine_ext import Engine
    from unpaced.schemas.completion import CompletionBody

# llama.cpp 0c1e57098 common/common.h: common_grammar_trigger_type.
_TOKEN, _WORD, _PATTERN, _PATTERN_FULL = range(4)
_MAX_TRIGGERS: Final = 64
_MAX_TRIGGER_BYTES: Final = 4096


async def read_grammar(engine: "Engine", body: "CompletionBody") -> GrammarSpec | None:
    """What `response_format`, `json_schema`, `grammar` and the trigger fields ask for.

    Raises: ApiError (400) naming the field.
    """
    spec = _of_response_format(body.response_format, body.json_schema)
    if spec is not None and body.grammar:
        raise invalid("Cannot use both json_schema and grammar", param="response_format")
    if body.grammar:
        spec = GrammarSpec.of_text(body.grammar)  # it wins over json_schema, as in llama-server
    elif spec is None and body.json_schema is not None:
        if not isinstance(body.json_schema, dict | bool):
            kind = json_type(body.json_schema)
            raise invalid_field("json_schema", f"type must be object, but is {kind}")
        spec = GrammarSpec.of_schema(body.json_schema)
    triggers = await _triggers(engine, body)
    if not body.grammar_lazy:
        return spec
    if not triggers:
        raise invalid_field("grammar_lazy", "Error: no triggers set for lazy grammar!")
    return None if spec is None else GrammarSpec(spec.kind, spec.text, triggers)


def _of_response_format(value: Any, json_schema: Any) -> GrammarSpec | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise invalid_field("response_format", f"type must be object, but is {json_type(value)}")
    kind = value.get("type")
    if kind is None or kind in ("", "text"):
        return None
    if kind == "json_object":
        says_it_elsewhere = "schema" not in value and json_schema
        return None if says_it_elsewhere else _of_schema(value.get("schema"))
    if kind == "json_schema":
        wrapper = value.get("json_schema")
        if not isinstance(wrapper, dict):
            raise invalid_field(
                "response_format", f"json_schema must be object, but is {json_type(wrapper)}"
            )
        return _of_schema(wrapper.get("schema"))
    raise invalid(
        'response_format type must be one of "text" or "json_object", but got: ' + str(kind),
        param="response_format",
    )


def _of_schema(schema: Any) -> GrammarSpec:
    if schema is None or schema == {}:
        return ANY_OBJECT
    return GrammarSpec.of_schema(schema)


async def read_preserved_tokens(engine: "Engine", body: "CompletionBody") -> tuple[int, ...]:
    """`preserved_tokens` by id; text that is not exactly one token is left out, as there."""
    ids = []
    for text in body.preserved_tokens or ():
        tokens = await engine.tokenize(text, add_special=False, parse_special=True)
        if len(tokens) == 1:
            ids.append(tokens[0])
    return tuple(sorted(set(ids)))


async def _triggers(engine: "Engine", body: "CompletionBody") -> tuple[GrammarTrigger, ...]:
    value = body.grammar_triggers
    if value is None:
        return ()
    if not isinstance(value, list):
        raise invalid_field("grammar_triggers", f"type must be array, but is {json_type(value)}")
    if len(value) > _MAX_TRIGGERS:
        raise invalid_field("grammar_triggers", f"at most {_MAX_TRIGGERS}, but got {len(value)}")
    preserved = await read_preserved_tokens(engine, body)
    return tuple([await _trigger(engine, item, preserved) for item in value])


async def _trigger(engine: "Engine", value: Any, preserved: tuple[int, ...]) -> GrammarTrigger:
    field = "grammar_triggers"
    if not isinstance(value, dict):
        raise invalid_field(field, f"an entry must be object, but is {json_type(value)}")
    kind, text, token = value.get("type"), value.get("value"), value.get("token")
    if isinstance(kind, bool) or kind not in (_TOKEN, _WORD, _PATTERN, _PATTERN_FULL):
        raise invalid_field(field, "type must be 0 (token), 1 (word), 2 or 3 (pattern)")
    if kind in (_PATTERN, _PATTERN_FULL):
        raise invalid_field(field, "patterns are not supported; use words or tokens")
    if kind == _TOKEN:
        if isinstance(token, bool) or not isinstance(token, int):
            raise invalid_field(field, "token must be a token id")
        if not 0 <= token < engine.model.n_vocab:
            raise invalid_field(field, f"token {token} is not in the vocabulary")
        return GrammarTrigger(token=token)
    if not isinstance(text, str) or not text:
        raise invalid_field(field, "value must be a non-empty string")
    word = text.encode()
    if len(word) > _MAX_TRIGGER_BYTES:
        raise invalid_field(field, f"at most {_MAX_TRIGGER_BYTES} bytes a word")
    tokens = await engine.tokenize(text, add_special=False, parse_special=True)
    if len(tokens) != 1:
        return GrammarTrigger(word=word)
    if tokens[0] not in preserved:
        raise invalid_field(
            field, f"Grammar trigger word should be marked as preserved token: {text}"
        )
    return GrammarTrigger(token=tokens[0])
