"""SamplingParams refuses what the native side must not see, naming the field."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_ext import SAMPLERS, SamplingParams


def test_defaults_are_llama_servers() -> None:
    params = SamplingParams()
    assert (params.temperature, params.top_k, params.top_p, params.min_p) == (0.8, 40, 0.95, 0.05)
    assert (params.repeat_penalty, params.repeat_last_n) == (1.0, 64)
    assert params.samplers == SAMPLERS


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", math.nan),
        ("top_p", math.inf),
        ("top_k", 2**31),
        ("seed", -1),
        ("seed", 2**32),
        ("repeat_penalty", 0.0),
        ("repeat_penalty", -1.0),
        ("repeat_last_n", -1),
        ("dry_penalty_last_n", -2),
        ("dry_allowed_length", -1),
        ("min_keep", -1),
        ("mirostat", 3),
        ("samplers", ("top_k", "nonsense")),
        ("samplers", ("top_k",) * 17),
        ("logit_bias", ((-1, 1.0),)),
        ("logit_bias", ((1, math.nan),)),
        ("logit_bias", ((1, math.inf),)),
    ],
)
def test_bad_values_are_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{field}: "):
        SamplingParams(**{field: value})


def test_dry_needs_a_breaker() -> None:
    with pytest.raises(ValueError, match=r"^dry_sequence_breakers: "):
        SamplingParams(dry_multiplier=1.0, dry_sequence_breakers=())


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**31) + 1, 2**31 - 1))
def test_any_finite_number_is_taken_where_it_has_a_meaning(number: float, count: int) -> None:
    params = SamplingParams(temperature=number, top_p=number, min_p=number, top_k=count)
    assert params.top_k == count
