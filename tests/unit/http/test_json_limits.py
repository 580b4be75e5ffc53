"""A body is counted before it is decoded."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_ext import json_shape
from unpaced.http.errors import ApiError
from unpaced.http.json_limits import decode_json
from unpaced.settings import Settings

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False,
    allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)  # fmt: skip


def counted(value: Any) -> tuple[int, int, int]:
    """Depth, values that are no numbers, numbers."""
    if isinstance(value, dict | list):
        items = [*value, *value.values()] if isinstance(value, dict) else value
        each = [counted(item) for item in items]
        depth = 1 + max((d for d, _, _ in each), default=0)
        return depth, 1 + sum(n for _, n, _ in each), sum(n for _, _, n in each)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return 0, 0 if is_number else 1, 1 if is_number else 0


@given(JSON, st.booleans())
def test_the_shape_is_what_python_counts(value: Any, is_indented: bool) -> None:
    data = orjson.dumps(value, option=orjson.OPT_INDENT_2 if is_indented else None)
    assert json_shape(data) == counted(orjson.loads(data))


@given(st.binary())
def test_it_says_something_of_anything(data: bytes) -> None:
    depth, n_values, n_numbers = json_shape(data)
    assert depth <= len(data)
    assert n_values + n_numbers <= len(data)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"[" * 17 + b"]" * 17, "nests 17 arrays and objects, 16 are allowed (--max-json-depth)"),
        (b"[" + b'"",' * 1024 + b'""]', "1026 values that are no numbers, 1024 are allowed"),
        (b"[" + b"1," * 1024 + b"1]", "1025 numbers, 1024 are allowed (--max-json-numbers)"),
        (b"[" * 100_000, "--max-json-depth"),
    ],
)
def test_what_is_over_a_limit_is_refused(data: bytes, said: str) -> None:
    settings = Settings(max_json_depth=16, max_json_values=1024, max_json_numbers=1024)
    with pytest.raises(ApiError) as caught:
        decode_json(data, settings)
    assert caught.value.status == 400
    assert said in str(caught.value)


def test_what_is_at_the_limits_is_read() -> None:
    settings = Settings(max_json_depth=16, max_json_values=1024, max_json_numbers=1024)
    for data in (
        b"[" * 16 + b"]" * 16,
        b"[" + b'"",' * 1022 + b'""]',
        b"[" + b"1," * 1023 + b"1]",
    ):
        assert decode_json(data, settings) == orjson.loads(data)
