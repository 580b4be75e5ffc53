"""Entries of probabilities: a token's own text, and numbers that JSON has."""

import math
from typing import Any

import pytest

from tests.support.scripted.fake_engine import FakeEvent
from unpaced.completion.logprobs import token_probs, whole_text


@pytest.mark.parametrize(
    ("piece", "text"),
    [
        (b"abc", "abc"),
        ("é€😀".encode(), "é€😀"),
        ("a€".encode()[:-1], "a"),
        ("😀".encode()[:3], ""),
        (b"a\xe2", "a"),
        (b"\x82", "\ufffd"),
        (b"", ""),
    ],
)
def test_a_tokens_text_leaves_out_an_unfinished_character(piece: bytes, text: str) -> None:
    assert whole_text(piece) == text


def test_probabilities_without_a_logarithm_are_the_lowest_float() -> None:
    event: Any = FakeEvent(
        kind=2, token=97, logprob=-math.inf, top_logprobs=[(98, -0.5), (99, -math.inf)]
    )
    pieces = [bytes([i]) for i in range(256)]
    entry = token_probs(event, pieces, 2, post_sampling=False)
    assert entry["logprob"] == entry["top_logprobs"][1]["logprob"] == -3.4028234663852886e38
    event.top_logprobs = [(98, 0.75), (99, 0.0)]
    event.logprob = 0.25
    entry = token_probs(event, pieces, 2, post_sampling=True)
    assert (entry["prob"], len(entry["top_probs"])) == (0.25, 1)
