"""How a template writes tool calls, found out by rendering some.

The result is JSON for `unpaced.chat.tools.syntax.ToolSyntax`.
"""

import json
import re
from typing import Any, Final

from unpaced.rendering.capabilities import Capabilities, Trial
from unpaced.rendering.common_prefix import common_prefix
from unpaced.rendering.environment import CompiledTemplate

_NAME: Final = "pr0be_t00l"
_KEYS: Final = ("pr0be_a", "pr0be_b")
_VALUES: Final = ("va1ue_a", "va1ue_b")
_IDS: Final = ("ca11a0001", "ca11b0002")  # nine letters and digits: Mistral's templates insist
_TEXT: Final = "P1AIN"
_TAG: Final = re.compile(r"<[^<>\n]{1,80}>|\[/?[A-Z_]{2,40}\]")
_USER: Final = {"role": "user", "content": "U5ER"}
_TOOL: Final = {
    "type": "function",
    "function": {
        "name": _NAME,
        "description": "D",
        "parameters": {
            "type": "object",
            "properties": {key: {"type": "string", "description": "d"} for key in _KEYS},
            "required": list(_KEYS),
        },
    },
}


def find_tool_syntax(template: CompiledTemplate, caps: Capabilities) -> dict[str, Any] | None:
    """Find the syntax; None if the template's calls are in no form that we can read."""
    probe = _Probe(template, caps)
    one = probe.call_text(1)
    if one is None or _NAME not in one:
        return None
    found = _find_json(one) or _find_named(one) or _find_tagged(one)
    if found is None:
        return None
    prefix, suffix, syntax = found
    two = probe.call_text(2) if caps.supports_parallel_tool_calls else None
    syntax |= _split_sections(prefix, suffix, None if syntax.get("array") else two)
    if syntax["kind"] == "json" and syntax["array"]:
        syntax |= {
            "section_start": syntax["call_start"],
            "call_start": "",
            "call_end": "",
            "section_end": syntax["call_end"],
        }
    syntax["section_end"] = _first_tag(syntax["section_end"])
    marks = "".join(value for value in syntax.values() if isinstance(value, str))
    if any(probe_word in marks for probe_word in (_NAME, *_KEYS, *_VALUES, *_IDS)):
        return None
    has_trigger = (syntax["section_start"] + syntax["call_start"]).strip() != ""
    return syntax if has_trigger or syntax["kind"] == "json" else None


class _Probe:
    def __init__(self, template: CompiledTemplate, caps: Capabilities) -> None:
        self._template = template
        self._as_object = caps.supports_object_arguments

    def call_text(self, n_calls: int) -> str | None:
        """What the template writes for `n_calls` calls in place of a plain text."""
        calls = [self._call(i) for i in range(n_calls)]
        for content in ("", None):
            with_calls = self._render({"content": content, "tool_calls": calls})
            plain = self._render({"content": _TEXT})
            if with_calls is None or plain is None or _TEXT not in plain:
                continue
            start = len(common_prefix(with_calls, plain))
            start = _not_in_tag(with_calls, min(start, plain.index(_TEXT)), -1)
            tail = plain[plain.index(_TEXT) + len(_TEXT) :]
            n_tail = len(common_prefix(with_calls[::-1], tail[::-1]))
            return with_calls[start : _not_in_tag(with_calls, len(with_calls) - n_tail, +1)]
        return None

    def _call(self, i: int) -> dict[str, Any]:
        arguments: Any = dict(zip(_KEYS, _VALUES, strict=True))
        if not self._as_object:
            arguments = json.dumps(arguments)
        function = {"name": _NAME, "arguments": arguments}
        return {"id": _IDS[i], "type": "function", "function": function}

    def _render(self, answer: dict[str, Any]) -> str | None:
        messages = [_USER, {"role": "assistant"} | answer]
        return Trial(
            self._template, messages, tools=[_TOOL], variables={"add_generation_prompt": False}
        ).text


Found = tuple[str, str, dict[str, Any]]


def _find_json(text: str) -> Found | None:
    """`{"name": ..., "arguments": {...}}`, perhaps in an array, perhaps with other keys."""
    decoder = json.JSONDecoder()
    for at in range(text.index(_NAME)):
        if text[at] not in "[{":
            continue
        try:
            value, end = decoder.raw_decode(text, at)
        except ValueError:
            continue
        is_array = isinstance(value, list)
        call = value[0] if is_array and value else value
        keys = _json_keys(call)
        if keys is not None:
            syntax = {"kind": "json", "array": is_array} | keys
            return text[:at], text[end:], syntax
    return None


def _json_keys(call: Any) -> dict[str, Any] | None:
    if not isinstance(call, dict):
        return None
    wrapper = ""
    if isinstance(call.get("function"), dict):
        wrapper, call = "function", call["function"]
    name_key = next((key for key, value in call.items() if value == _NAME), None)
    arguments_key = next(
        (
            key
            for key, value in call.items()
            if (isinstance(value, dict) and _KEYS[0] in value)
            or (isinstance(value, str) and _KEYS[0] in value)
        ),
        None,
    )
    if name_key is None or arguments_key is None:
        return None
    return {"wrapper": wrapper, "name_key": name_key, "arguments_key": arguments_key}


def _find_named(text: str) -> Found | None:
    """A name between marks, then its arguments as a JSON object: `<function=f>{...}</function>`."""
    at = text.index(_NAME)
    rest = text[at + len(_NAME) :]
    opening = rest.find("{")
    if opening < 0:
        return None
    try:
        value, end = json.JSONDecoder().raw_decode(rest, opening)
    except ValueError:
        return None
    if not isinstance(value, dict) or _KEYS[0] not in value:
        return None
    between = rest[:opening]
    for call_id in _IDS:
        if call_id in between:  # `name[CALL_ID]id[ARGS]`: an id that the model makes up
            head, _, tail = between.partition(call_id)
            return text[:at], rest[end:], {"kind": "named", "name_end": head, "id_end": tail}
    return text[:at], rest[end:], {"kind": "named", "name_end": between}


def _find_tagged(text: str) -> Found | None:
    """A name between marks, then each argument between marks."""
    at = text.index(_NAME)
    rest = text[at + len(_NAME) :]
    places = [rest.find(mark) for pair in zip(_KEYS, _VALUES, strict=True) for mark in pair]
    if min(places) < 0 or places != sorted(places):
        return None
    key_a, value_a, key_b, value_b = places
    between = rest[value_a + len(_VALUES[0]) : key_b]
    tail = rest[value_b + len(_VALUES[1]) :]
    value_end = common_prefix(between, tail)
    value_end = value_end[: _not_in_tag(tail, len(value_end), -1)]
    value_end = value_end[: _not_in_tag(between, len(value_end), -1)]
    key_start = between[len(value_end) :]
    if not rest[:key_a].endswith(key_start) or not key_start.strip():
        return None
    quote = '"' if rest[value_a - 1] == '"' and value_end.startswith('"') else ""
    syntax = {
        "kind": "tagged",
        "name_end": rest[: key_a - len(key_start)],
        "key_start": key_start,
        "key_end": rest[key_a + len(_KEYS[0]) : value_a - len(quote)],
        "value_end": value_end[len(quote) :],
        "quoted": bool(quote),
    }
    return text[:at], tail[len(value_end) :], syntax


def _split_sections(prefix: str, suffix: str, two: str | None) -> dict[str, str]:
    """Which marks stand around every call, and which around all of them."""
    call_start, call_end = prefix, suffix
    if two is not None and two.startswith(prefix) and two.endswith(suffix):
        body = two[len(prefix) : len(two) - len(suffix)]
        if body.count(_NAME) == 2:
            call_end = _longest(suffix, lambda n: suffix[:n], body)
            call_end = call_end[: _not_in_tag(suffix, len(call_end), -1)]
            middle = body.partition(call_end)[2] if call_end else body
            call_start = _longest(prefix, lambda n: prefix[len(prefix) - n :], middle)
            at = _not_in_tag(prefix + "x>", len(prefix) - len(call_start), -1)
            call_start = prefix[at:]
    else:
        call_end = _first_tag(suffix)
    return {
        "section_start": prefix[: len(prefix) - len(call_start)],
        "call_start": call_start,
        "call_end": call_end,
        "section_end": suffix[len(call_end) :],
    }


def _longest(of: str, part: Any, within: str) -> str:
    """The longest part of a mark that also stands between two calls."""
    for n in range(len(of), 0, -1):
        candidate: str = part(n)
        if candidate in within and candidate.strip():
            return candidate
    return ""


def _not_in_tag(text: str, at: int, direction: int) -> int:
    """`at`, or the beginning (-1) or end (+1) of the tag that it is in."""
    for tag in _TAG.finditer(text):
        if tag.start() < at < tag.end():
            return tag.start() if direction < 0 else tag.end()
    return at


def _first_tag(text: str) -> str:
    """Up to the end of the first tag: what follows may be the end of the turn."""
    tag = _TAG.search(text)
    return text if tag is None else text[: tag.end()]
