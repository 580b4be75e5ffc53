"""Pairs in flags: biases of tokens."""

import math

import pytest

from unpaced.settings.options.pairs import parse_bias


def test_biases_of_the_command_line() -> None:
    assert parse_bias("15043+1") == (15043, 1.0)
    assert parse_bias("15043-inf") == (15043, -math.inf)
    for bad in ("x", "5", "-5+1", "5+x", ""):
        with pytest.raises(ValueError, match=r"ID\+BIAS|float"):
            parse_bias(bad)
