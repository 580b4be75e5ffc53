"""Greedy answers computed in batches of different shapes: equal, up to where two tokens tie.

ggml computes a token alone with other kernels than together with others, and sums in another order
where cells lie elsewhere: logits differ in their last bits. See docs/compat.md, "What is equal".
"""

import math
from collections.abc import Sequence
from typing import Any, Final

TIE: Final = 0.3  # nats; 0.17 was seen between kernels, AVX without FMA


def assert_equal_up_to_a_tie(one: Sequence[Any], other: Sequence[Any]) -> None:
    """Entries of `completion_probabilities` of the two, greedy, with `n_probs` of 2 or more.

    Where they part, the other's token must have been almost as likely in the one.
    """
    for a, b in zip(one, other, strict=False):
        if a["id"] != b["id"]:
            likely = {entry["id"]: entry["logprob"] for entry in a["top_logprobs"]}
            assert likely.get(b["id"], -math.inf) > a["logprob"] - TIE
            return
        assert abs(a["logprob"] - b["logprob"]) < TIE
    assert len(one) == len(other)
