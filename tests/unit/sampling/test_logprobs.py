"""Logprobs of the plain softmax, before any sampler."""

import numpy as np
import pytest

from tests.support.sampling.random_sampling import tie_free_logits
from tests.support.sampling.sampling_library import top_logprobs


def test_top_logprobs_are_the_log_softmax() -> None:
    for n_vocab in (1, 5, 1000, 3000):
        logits = tie_free_logits(np.random.default_rng(0), n_vocab, 3.0)
        wide = logits.astype(np.float64)
        expected = wide - np.max(wide) - np.log(np.exp(wide - np.max(wide)).sum())
        for n in (0, 1, 20, n_vocab, n_vocab + 5):
            best, of_token = top_logprobs(logits, n, n_vocab // 2)
            order = np.argsort(-logits)[:n]
            assert best["token"].tolist() == order.tolist()
            np.testing.assert_allclose(best["logprob"], expected[order], atol=1e-5)
            assert of_token == pytest.approx(expected[n_vocab // 2], abs=1e-5)


def test_top_logprobs_of_bad_logits_are_none() -> None:
    for bad in (np.array([1, np.nan]), np.array([np.inf, 0]), np.array([-np.inf, -np.inf])):
        best, of_token = top_logprobs(bad.astype(np.float32), 2, 0)
        assert len(best) == 0
        assert np.isnan(of_token)


def test_banned_tokens_have_logprob_minus_infinity() -> None:
    best, of_token = top_logprobs(np.array([0, -np.inf, 0], np.float32), 3, 1)
    assert best["token"].tolist() == [0, 2, 1]
    assert best["logprob"][0] == pytest.approx(-np.log(2))
    assert of_token == -np.inf
