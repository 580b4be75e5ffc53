"""Values that a field was not made for, and JSON that says them as no serialiser would."""

import copy
import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tests.parity.field_values import SPECIAL


@dataclass(frozen=True, slots=True)
class Raw:
    """A value as it stands in JSON: numbers of any length, any depth, what JSON does not have."""

    text: str


_NUMBERS: Final[tuple[Any, ...]] = (
    *(0, -1, 1, 2, 3, 0.5, -0.5, 1.5, 1e-320, 1e308, -1e308, 3.4e38, 3.5e38, 1e-46),
    *(127, 128, 255, 256, 2**15, 2**16, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**32),
    *(2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64 - 1, 2**64, 2**128),
    *(Raw(text) for text in ("-0", "-0.0", "1e0", "1E+2", "1e999", "-1e999", "1e-999")),
    *(Raw(text) for text in ("NaN", "Infinity", "-Infinity", "01", "+1", ".5", "1.", "0x10")),
    *(Raw("9" * n) for n in (20, 310, 4300, 4301, 5000)),
    *(Raw("-" + "7" * 5000), Raw("0." + "1" * 5000), Raw("1" + "0" * 400), Raw("1e" + "9" * 30)),
)
_TEXTS: Final[tuple[Any, ...]] = (
    *("", " ", "a", "\n", "\0", "a\0b", "\t\r\n", "\\", '"', "'", "/", "..", "../../etc/passwd"),
    *(
        "0",
        "-1",
        "--5",
        "1.5",
        "1e5",
        "true",
        "null",
        "NaN",
        "[]",
        "{}",
        "٣",
        "²",
        "\u22121",
        "1_000",
    ),
    *(
        "é",
        "é",
        "\u200b",
        "\ufeff",
        "\ufffd",
        "\uffff",
        "😀",
        "👩‍👩‍👧",
        "مرحبا",
        "日本語",
        "\U0010ffff",
    ),
    *("<s>", "</s>", "<|user|>", "<|im_end|>", "<think>", "</think>", "<unk>", "<0x00>"),
    *("{{", "{% for x in y %}", "{{ messages }}", "%s%n", "$ref", "#/$defs/a", "(", "[", "*", "a{"),
    *(
        "(a+)+$",
        "\\p{L}",
        "(?=a)",
        "[^",
        "root ::= root",
        "%llguidance {}\nstart: /a/",
        "start: start",
    ),
    *("data:image/png;base64,aGk=", "http://127.0.0.1:1/", "file:///etc/passwd", "__proto__"),
    *("9" * 5000, "-" + "9" * 5000, "a" * 300, "a" * 5000, "é" * 3000, "{" * 2000, "a\u0301" * 500),
    *(Raw(text) for text in ('"\\ud800"', '"\\udc00\\ud800"', '"a\\ud83d"', '"\\u0000"')),
    *(Raw(text) for text in ('"\\x"', '"\t"', '"', "'a'", '"\\u12"')),
)
_LISTS: Final[tuple[Any, ...]] = (
    *([], [[]], [{}], [None], [True], [0], [1.5], [""], ["a", 1], [[1, 2], [3]], [[[]]], [[1]] * 3),
    *([""] * 300, ["a"] * 300, [0] * 3000, [[]] * 300, [{}] * 300, [None] * 300, ["a" * 5000]),
    *([[5, 1]], [["a", False]], [[1, 2, 3]], [{"type": "text"}], [{"type": "text", "text": None}]),
)
_OBJECTS: Final[tuple[Any, ...]] = (
    *({}, {"": ""}, {"a": None}, {"type": None}, {"type": []}, {"type": "object"}, {"0": 0}),
    *({"1": 1, "2": False}, {"--5": 1}, {"9" * 5000: 1}, {"k" * 5000: 1}, {"\0": 1}, {"a.b": {}}),
    *({"prompt_string": None}, {"$ref": "#"}, {"$ref": "#/$defs/x"}, {"anyOf": []}, {"enum": []}),
    *({str(i): i for i in range(300)}, {"type": "function", "function": {}}, {"type": "text"}),
    *(Raw('{"\\ud800": 1}'), Raw('{"a": 1, "a": {}}'), Raw('{"type": "a", "type": 5}')),
    *(Raw("{a: 1}"), Raw('{"a" 1}'), Raw('{"a": 1,}'), Raw('{"a": undefined}')),
)
_DEPTHS: Final = (10, 64, 100, 127, 128, 200, 254, 256, 500, 900, 990, 1000, 1023, 1024, 1025, 2000)
_DEEP: Final[tuple[tuple[str, str, str], ...]] = (
    ("[", "", "]"),
    ("[", "1", "]"),
    ('{"a":', "1", "}"),
    ('{"type":"array","items":', "{}", "}"),
    ('{"type":"object","properties":{"a":', "true", "}}"),
    ('{"anyOf":[', '{"type":"null"}', "]}"),
    ('{"not":', "{}", "}"),
    ('[{"a":', "null", "}]"),
)
_HUGE_DEPTH: Final = 100_000


def words_of_sources(sources: str) -> list[str]:
    """Every name that the code spells as a string: fields, types, roles."""
    return sorted(set(re.findall(r'"([A-Za-z_$][\w.$-]{1,40})"', sources)))


def _deep(rng: random.Random) -> Raw:
    before, inner, after = rng.choice(_DEEP)
    n = _HUGE_DEPTH if rng.random() < 0.02 else rng.choice(_DEPTHS) + rng.randrange(-3, 4)
    return Raw(before * n + inner + after * n)


def _known(rng: random.Random) -> Any:
    return rng.choice(SPECIAL[rng.choice(list(SPECIAL))])


def _small(rng: random.Random) -> Any:
    return rng.choice((None, True, False))


_MAKERS: Final[tuple[tuple[int, Callable[[random.Random], Any]], ...]] = (
    (3, _small),
    (5, lambda rng: rng.choice(_NUMBERS)),
    (5, lambda rng: rng.choice(_TEXTS)),
    (3, lambda rng: rng.choice(_LISTS)),
    (3, lambda rng: rng.choice(_OBJECTS)),
    (1, _deep),
    (3, _known),
)


def odd_value(rng: random.Random, depth: int = 0) -> Any:
    """One of them, or a list or an object of some."""
    if depth < 2 and rng.random() < 0.08:
        values = [odd_value(rng, depth + 1) for _ in range(rng.randrange(1, 4))]
        return values if rng.random() < 0.5 else {odd_key(rng): value for value in values}
    makers = [make for _, make in _MAKERS]
    value = rng.choices(makers, [weight for weight, _ in _MAKERS])[0](rng)
    return copy.deepcopy(value)  # it may be mutated in its turn


def odd_key(rng: random.Random) -> str:
    """A key of an object."""
    text = rng.choice(_TEXTS)
    return text if isinstance(text, str) else "k"


def to_json(value: Any) -> str:
    """JSON, in which a `Raw` stands as it is."""
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{to_json(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(to_json, value)) + "]"
    return json.dumps(value)
