"""Frequencies of many draws against probabilities computed here from the definitions."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.sampling.random_sampling import off, tie_free_logits
from tests.support.sampling.sampling_library import Floats, Sampler
from tests.support.sampling.sampling_params import Params

N_VOCAB = 200
N_DRAWS = 200_000

Probabilities = npt.NDArray[np.float64]


def softmax(logits: npt.NDArray[np.floating]) -> Probabilities:
    wide = logits.astype(np.float64)
    weights = np.exp(wide - np.max(wide))
    return np.asarray(weights / weights.sum())


def only(probabilities: Probabilities, kept: npt.NDArray[np.intp]) -> Probabilities:
    """Probabilities of the kept tokens, summing to 1; 0 elsewhere."""
    result = np.zeros_like(probabilities)
    result[kept] = probabilities[kept]
    return np.asarray(result / result.sum())


def assert_fits(drawn: npt.NDArray[np.int32], expected: Probabilities) -> None:
    """Pearson's chi-square test, at five standard deviations of the statistic."""
    observed = np.bincount(drawn, minlength=N_VOCAB)
    assert not observed[expected == 0].any()
    frequent = expected * len(drawn) >= 5
    rare_observed = observed[~frequent].sum()
    rare_expected = expected[~frequent].sum() * len(drawn)
    wanted = expected[frequent] * len(drawn)
    statistic = ((observed[frequent] - wanted) ** 2 / wanted).sum()
    n_free = int(frequent.sum()) - 1
    if rare_expected >= 5:
        statistic += (rare_observed - rare_expected) ** 2 / rare_expected
        n_free += 1
    assert statistic < n_free + 5 * np.sqrt(2 * max(n_free, 1)) + 5


@pytest.fixture
def logits() -> Floats:
    return tie_free_logits(np.random.default_rng(1), N_VOCAB, 2.0)


def draw(params: Params, logits: Floats) -> npt.NDArray[np.int32]:
    sampler = Sampler(N_VOCAB)
    sampler.reset(replace(params, seed=42))
    return sampler.draw_many(logits, N_DRAWS)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_temperature(logits: Floats, temperature: float) -> None:
    expected = softmax(logits.astype(np.float64) / temperature)
    assert_fits(draw(replace(off(), temperature=temperature), logits), expected)


def test_top_k(logits: Floats) -> None:
    kept = np.argsort(-logits)[:20]
    assert_fits(draw(replace(off(), top_k=20), logits), only(softmax(logits), kept))


def test_top_p(logits: Floats) -> None:
    probabilities = softmax(logits)
    order = np.argsort(-logits)
    n = int(np.searchsorted(np.cumsum(probabilities[order]), 0.8)) + 1
    assert_fits(draw(replace(off(), top_p=0.8), logits), only(probabilities, order[:n]))


def test_min_p(logits: Floats) -> None:
    probabilities = softmax(logits)
    kept = np.flatnonzero(probabilities >= 0.02 * np.max(probabilities))
    assert_fits(draw(replace(off(), min_p=0.02), logits), only(probabilities, kept))


def test_typical_p(logits: Floats) -> None:
    probabilities = softmax(logits)
    entropy = -(probabilities * np.log(probabilities)).sum()
    order = np.argsort(np.abs(-np.log(probabilities) - entropy))
    n = int(np.searchsorted(np.cumsum(probabilities[order]), 0.6, side="right")) + 1
    assert_fits(draw(replace(off(), typical_p=0.6), logits), only(probabilities, order[:n]))


def test_top_n_sigma(logits: Floats) -> None:
    wide = logits.astype(np.float64)
    kept = np.flatnonzero(wide >= np.max(wide) - 1.5 * wide.std())
    assert_fits(draw(replace(off(), top_n_sigma=1.5), logits), only(softmax(wide), kept))


def test_xtc_strikes_with_its_probability(logits: Floats) -> None:
    probabilities = softmax(logits)
    order = np.argsort(-logits)
    n_top = int((probabilities >= 0.03).sum())
    assert n_top > 2
    struck = only(probabilities, order[n_top - 1 :])
    expected = 0.3 * struck + 0.7 * probabilities
    params = replace(off(), xtc_probability=0.3, xtc_threshold=0.03)
    assert_fits(draw(params, logits), expected)


def test_dynamic_temperature(logits: Floats) -> None:
    wide = logits.astype(np.float64)
    probabilities = softmax(wide)
    entropy = -(probabilities * np.log(probabilities)).sum() / np.log(N_VOCAB)
    temperature = 0.7 + (1.3 - 0.7) * entropy**2
    params = replace(off(), dynatemp_range=0.3, dynatemp_exponent=2.0)
    assert_fits(draw(params, logits), softmax(wide / temperature))


def test_default_chain(logits: Floats) -> None:
    order = np.argsort(-logits)[:40]
    probabilities = only(softmax(logits), order)
    n = int(np.searchsorted(np.cumsum(probabilities[order]), 0.95)) + 1
    order = order[:n]
    order = order[probabilities[order] >= 0.05 * np.max(probabilities)]
    expected = only(softmax(logits.astype(np.float64) / 0.8), order)
    assert_fits(draw(Params(), logits), expected)


def test_penalties_and_bias(logits: Floats) -> None:
    text = (3, 3, 3, 50, 60)
    wide = logits.astype(np.float64)
    wide[60] += 2.0  # the bias comes first
    for token, count in ((3, 3), (50, 1), (60, 1)):
        wide[token] = wide[token] * 1.3 if wide[token] <= 0 else wide[token] / 1.3
        wide[token] -= 0.1 * count + 0.4
    params = replace(
        off(),
        repeat_penalty=1.3,
        frequency_penalty=0.1,
        presence_penalty=0.4,
        logit_bias=((60, 1.5), (60, 0.5)),
    )
    sampler = Sampler(N_VOCAB)
    sampler.reset(replace(params, seed=42), prompt=text)
    assert_fits(sampler.draw_many(logits, N_DRAWS), softmax(wide))


@pytest.mark.parametrize("mirostat", [1, 2])
@pytest.mark.parametrize("tau", [2.0, 4.0])
def test_mirostat_reaches_its_surprise(logits: Floats, mirostat: int, tau: float) -> None:
    params = replace(off(), mirostat=mirostat, mirostat_tau=tau, mirostat_eta=0.05)
    drawn = draw(params, logits)
    frequencies = np.bincount(drawn, minlength=N_VOCAB) / len(drawn)
    seen = frequencies[frequencies > 0]
    entropy = -(seen * np.log2(seen)).sum()  # of the mixture that the moving cut makes
    assert abs(entropy - tau) < 0.6


def test_candidates_are_the_distribution_that_is_drawn_from(logits: Floats) -> None:
    for params in (Params(), off(), Params(top_k=0, typical_p=0.9)):
        sampler = Sampler(N_VOCAB)
        sampler.reset(replace(params, seed=42))
        drawn = sampler.draw_many(logits, N_DRAWS)
        candidates = sampler.candidates()
        expected = np.zeros(N_VOCAB)
        expected[candidates["token"]] = candidates["p"]
        assert abs(expected.sum() - 1) < 1e-5
        assert (np.diff(candidates["p"]) <= 0).all()
        assert_fits(drawn, expected / expected.sum())
