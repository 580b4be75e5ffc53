"""Corners of the sampler: logits that are not numbers, bans, ties, extreme parameters."""

from dataclasses import replace

import numpy as np
import pytest

from tests.support.sampling.random_sampling import off, tie_free_logits
from tests.support.sampling.sampling_library import Floats, Sampler, reference_sample
from tests.support.sampling.sampling_params import Params

CHAINS = (
    Params(),
    off(),
    Params(top_k=0),
    Params(temperature=0.0),
    Params(mirostat=1),
    Params(mirostat=2),
    Params(top_k=0, typical_p=0.5, xtc_probability=1.0, xtc_threshold=0.05, dynatemp_range=0.5),
    Params(top_n_sigma=1.0, repeat_penalty=1.1, dry_multiplier=0.8),
)


def sample(params: Params, logits: Floats, prompt: tuple[int, ...] = ()) -> int | None:
    sampler = Sampler(len(logits))
    sampler.reset(params, prompt=prompt)
    return sampler.sample(logits)


def random_logits(n_vocab: int, seed: int = 0, scale: float = 3.0) -> Floats:
    return tie_free_logits(np.random.default_rng(seed), n_vocab, scale)


@pytest.mark.parametrize("params", CHAINS)
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf])
def test_one_logit_that_is_no_number_is_an_error(params: Params, bad: float) -> None:
    for n_vocab in (1, 40, 256, 1000):
        for position in {0, n_vocab // 2, n_vocab - 1}:
            logits = random_logits(n_vocab)
            logits[position] = bad
            assert sample(params, logits) is None


@pytest.mark.parametrize("params", CHAINS)
def test_every_token_banned_is_an_error(params: Params) -> None:
    for n_vocab in (1, 300):
        assert sample(params, np.full(n_vocab, -np.inf, np.float32)) is None
        every = tuple((token, -np.inf) for token in range(n_vocab))
        assert sample(replace(params, logit_bias=every), random_logits(n_vocab)) is None


@pytest.mark.parametrize("params", CHAINS)
def test_the_only_token_that_is_not_banned_is_drawn(params: Params) -> None:
    for n_vocab in (2, 300):
        for survivor in (0, n_vocab - 1):
            banned = tuple((t, -np.inf) for t in range(n_vocab) if t != survivor)
            token = sample(replace(params, logit_bias=banned), random_logits(n_vocab))
            assert token == survivor
            logits = np.full(n_vocab, -np.inf, np.float32)
            logits[survivor] = -5.0
            assert sample(params, logits) == survivor


@pytest.mark.parametrize("params", CHAINS)
def test_sampling_reads_the_logits_only(params: Params) -> None:
    logits = random_logits(1000)
    before = logits.copy()
    logits.flags.writeable = False
    sample(replace(params, logit_bias=((3, 1.0), (4, -np.inf))), logits, prompt=(1, 2, 1, 2))
    assert (logits == before).all()


def test_after_an_error_the_next_row_is_sampled_as_if_nothing_had_been() -> None:
    good = random_logits(1000)
    bad = good.copy()
    bad[7] = np.nan
    sampler = Sampler(1000)
    sampler.reset(Params(seed=5))
    expected = [sampler.sample(good) for _ in range(3)]
    sampler.reset(Params(seed=5))
    tokens = []
    for _ in range(3):
        assert sampler.sample(bad) is None
        tokens.append(sampler.sample(good))
    assert tokens == expected


@pytest.mark.parametrize(
    "params",
    [
        Params(temperature=0.0),
        Params(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0),
        Params(top_k=1),
        replace(off(), top_p=0.0),
        replace(off(), min_p=1.0, top_k=1),
        replace(off(), temperature=-1.0),
        replace(off(), temperature=1e-42),
        replace(off(), dynatemp_range=1.0, temperature=0.0, top_k=1),
    ],
)
def test_greedy_parameters_take_the_best_token(params: Params) -> None:
    for seed in range(20):
        logits = random_logits(500, seed)
        assert sample(replace(params, seed=seed), logits) == int(np.argmax(logits))


@pytest.mark.parametrize("n_vocab", [5, 64, 700, 5000])
def test_ties_go_to_the_lower_token(n_vocab: int) -> None:
    rng = np.random.default_rng(n_vocab)
    for k in (1, 2, 3, 10, 40, 300, n_vocab, n_vocab + 1):
        logits = rng.integers(0, 4, n_vocab).astype(np.float32)
        logits[rng.random(n_vocab) < 0.2] = -0.0  # the same number as 0
        sampler = Sampler(n_vocab)
        sampler.reset(replace(off(), top_k=k))
        sampler.sample(logits)
        order = np.lexsort((np.arange(n_vocab), -logits))[:k]
        assert sampler.candidates()["token"].tolist() == order.tolist()
        assert sample(replace(off(), temperature=0.0), logits) == order[0]


def test_llama_cpps_order_of_ties_is_not_the_tokens() -> None:
    # Why draws among equal logits are left out of the comparison: its partial sort is unstable.
    logits = np.zeros(100, np.float32)
    _, left = reference_sample(logits, replace(off(), top_k=40))
    assert left["token"].tolist() != list(range(40))
    assert set(left["logit"].tolist()) == {0.0}


def test_where_llama_cpps_temperature_overflows_the_best_token_is_taken() -> None:
    # It divides to +inf, its probabilities are NaN, and it takes the last candidate, the worst.
    logits = random_logits(100)
    params = replace(off(), top_k=10, temperature=1e-39)
    token, left = reference_sample(logits, params)
    assert np.isnan(left["p"]).any()
    assert token == int(np.argsort(-logits)[9])
    assert sample(params, logits) == int(np.argmax(logits))


def test_min_keep_is_honoured() -> None:
    logits = random_logits(500, scale=20.0)
    for params in (
        replace(off(), top_p=0.1, min_keep=7),
        replace(off(), min_p=0.9, min_keep=7),
        replace(off(), typical_p=0.0, min_keep=7),
        replace(off(), top_k=30, top_p=0.1, min_p=0.9, min_keep=7),
    ):
        sampler = Sampler(500)
        sampler.reset(params)
        sampler.sample(logits)
        assert len(sampler.candidates()) == 7
    sampler.reset(replace(off(), top_p=0.1, min_keep=10_000))
    sampler.sample(logits)
    assert len(sampler.candidates()) == 500


def test_parameters_at_their_ends() -> None:
    logits = random_logits(500)
    for params in (
        replace(off(), top_k=2**31 - 1),
        replace(off(), top_k=-1),
        replace(off(), top_p=0.0, min_p=0.0, typical_p=0.0),
        replace(off(), min_p=2.0),
        replace(off(), temperature=float("inf")),
        replace(off(), temperature=3e38, dynatemp_range=3e38, dynatemp_exponent=-3.0),
        replace(off(), top_n_sigma=1e38),
        replace(off(), repeat_penalty=1e-38, repeat_last_n=2**31 - 1),
        replace(off(), frequency_penalty=3e38, presence_penalty=-3e38),
        replace(off(), dry_multiplier=3e38, dry_base=3e38, dry_allowed_length=0),
        replace(off(), dry_multiplier=1.0, dry_penalty_last_n=-1, dry_allowed_length=2**31 - 1),
        replace(off(), mirostat=2, mirostat_tau=0.0),
        replace(off(), mirostat=1, mirostat_tau=100.0, mirostat_eta=100.0),
    ):
        sampler = Sampler(500)
        sampler.reset(params, prompt=(1, 2, 3, 1, 2, 3, 1, 2))
        for _ in range(20):
            token = sampler.sample(logits)
            assert token is not None and 0 <= token < 500
            sampler.accept(token)


def test_a_seed_gives_the_same_tokens_again() -> None:
    logits = random_logits(1000)
    sampler = Sampler(1000)
    drawn = []
    for seed in (1, 2, 1):
        sampler.reset(Params(seed=seed, top_k=0))
        drawn.append(sampler.draw_many(logits, 50).tolist())
    assert drawn[0] == drawn[2] != drawn[1]


def test_more_text_than_the_context_keeps_the_newest() -> None:
    # The window cannot be longer than the context; what is older is forgotten, not corrupted.
    sampler = Sampler(50, n_ctx=8)
    params = replace(off(), temperature=0.0, presence_penalty=10.0, repeat_last_n=1000)
    sampler.reset(params, prompt=tuple(range(40)))
    logits = np.linspace(1, 0, 50, dtype=np.float32)
    assert sampler.sample(logits) == 0
    for token in range(49):
        sampler.accept(token)
    assert sampler.sample(logits) == 0
    sampler.accept(0)
    assert sampler.sample(logits) == 1
