"""Our sampler against llama.cpp's own: the same logits, parameters and seed give the same token.

Ties are left out by construction (every row's logits differ); test_sampling_edges.py has those.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from tests.support.sampling.random_sampling import (
    mixed,
    off,
    sequence,
    tie_free_logits,
    with_sampler,
)
from tests.support.sampling.sampling_build import vocabulary_file
from tests.support.sampling.sampling_library import Sampler, Vocabulary, compare
from tests.support.sampling.sampling_params import Params, Sequence

N_TOKENS = 16  # of a sequence: the state of penalties, DRY and mirostat evolves
BREAKERS = ("\n", ": and so", ":", '"', "*", "of the")

SAMPLERS = (
    "logit_bias",
    "penalties",
    "dry",
    "top_n_sigma",
    "top_k",
    "typ_p",
    "top_p",
    "min_p",
    "xtc",
    "temperature",
    "dynamic_temperature",
    "mirostat_1",
    "mirostat_2",
    "adaptive_p",
)


@pytest.fixture(scope="module")
def vocabularies() -> Iterator[dict[str, Vocabulary]]:
    names = ("llama-spm", "gpt-2")
    loaded = {name: Vocabulary(vocabulary_file(name), BREAKERS) for name in names}
    yield loaded
    for vocabulary in loaded.values():
        vocabulary.close()


def assert_same_tokens(
    n_vocab: int, scale: float, sequences: list[Sequence], vocabulary: Vocabulary | None = None
) -> None:
    rng = np.random.default_rng(n_vocab)
    logits = tie_free_logits(rng, 3 * n_vocab + 5000, scale)
    result = compare(logits, n_vocab, sequences, vocabulary=vocabulary)
    differing = [
        (int(result.ours[i]), int(result.theirs[i]), i % N_TOKENS, sequences[i // N_TOKENS])
        for i in result.differing[:5]
    ]
    assert not differing, f"{len(result.differing)} of {len(result.ours)} differ: {differing}"
    assert (result.ours >= 0).all()
    assert result.undefined.mean() < 0.001


@pytest.mark.parametrize("name", SAMPLERS)
def test_each_sampler_alone_draws_llama_cpps_tokens(name: str) -> None:
    rng = np.random.default_rng(SAMPLERS.index(name))
    for n_vocab, n_sequences, scale in ((33, 350, 2.0), (1024, 300, 4.0)):
        sequences = [
            sequence(rng, with_sampler(rng, off(), name), n_vocab, N_TOKENS)
            for _ in range(n_sequences)
        ]
        assert_same_tokens(n_vocab, scale, sequences)


@pytest.mark.parametrize("name", SAMPLERS)
def test_each_sampler_in_the_default_chain_draws_llama_cpps_tokens(name: str) -> None:
    rng = np.random.default_rng(100 + SAMPLERS.index(name))
    sequences = [
        sequence(rng, with_sampler(rng, Params(), name), 1024, N_TOKENS) for _ in range(650)
    ]
    assert_same_tokens(1024, 3.0, sequences)


@pytest.mark.parametrize(
    ("n_vocab", "n_sequences", "scale"),
    [
        (1, 700, 3.0),
        (2, 700, 3.0),
        (33, 1500, 3.0),
        (300, 1000, 1.0),
        (1024, 700, 2.0),
        (1024, 700, 6.0),
        (5000, 100, 3.0),
        (32001, 40, 3.0),
    ],
)
def test_mixed_chains_draw_llama_cpps_tokens(n_vocab: int, n_sequences: int, scale: float) -> None:
    rng = np.random.default_rng(7 * n_vocab + int(scale))
    sequences = [sequence(rng, mixed(rng, n_vocab), n_vocab, N_TOKENS) for _ in range(n_sequences)]
    assert_same_tokens(n_vocab, scale, sequences)


@pytest.mark.parametrize(
    ("n_vocab", "n_sequences", "scale"), [(2, 300, 3.0), (33, 500, 3.0), (1024, 300, 2.0)]
)
def test_mixed_chains_that_end_in_adaptive_p_draw_llama_cpps_tokens(
    n_vocab: int, n_sequences: int, scale: float
) -> None:
    rng = np.random.default_rng(11 * n_vocab)
    sequences = [
        sequence(rng, with_sampler(rng, mixed(rng, n_vocab), "adaptive_p"), n_vocab, N_TOKENS)
        for _ in range(n_sequences)
    ]
    assert_same_tokens(n_vocab, scale, sequences)


def test_the_plain_draw_is_llama_cpps() -> None:
    rng = np.random.default_rng(5)
    sequences = [sequence(rng, off(), 1024, N_TOKENS) for _ in range(700)]
    assert_same_tokens(1024, 3.0, sequences)
    sequences = [sequence(rng, off(), 32000, N_TOKENS) for _ in range(40)]
    assert_same_tokens(32000, 1.0, sequences)


def test_greedy_is_llama_cpps() -> None:
    rng = np.random.default_rng(6)
    for params in (Params(temperature=0.0), Params(temperature=0.0, top_k=0, top_p=1.0)):
        assert_same_tokens(1024, 3.0, [sequence(rng, params, 1024, N_TOKENS) for _ in range(650)])


@pytest.mark.parametrize(
    ("name", "n_vocab", "end", "n"),
    [("llama-spm", 300, 2, 200), ("llama-spm", 1500, 2, 20), ("gpt-2", 50257, 50256, 100)],
)
def test_infill_draws_llama_cpps_tokens(
    vocabularies: dict[str, Vocabulary], name: str, n_vocab: int, end: int, n: int
) -> None:
    rng = np.random.default_rng(n_vocab)
    chains = [("infill",), ("top_k", "infill"), ("top_k", "temperature", "infill", "top_p")]
    chains += [("infill", "penalties", "xtc", "infill", "temperature"), ("top_p", "infill")]
    sequences = []
    for i in range(n):
        # llama.cpp compares every candidate with every other: only few of a large vocabulary.
        chain = chains[i % len(chains) if n_vocab < 2000 else 1 + i % 2]
        params = replace(
            Params(),
            samplers=chain,
            temperature=float(rng.choice([0.3, 1, 2])),
            top_k=int(rng.choice([3, 10, 40, 200])),
            top_p=float(rng.choice([0.5, 0.95])),
            xtc_probability=0.5,
            repeat_penalty=1.3,
            # How likely the end is decides between the sampler's ways.
            logit_bias=((end, float(rng.choice([-np.inf, -12, -6, -3, 0, 4]))),),
            seed=int(rng.integers(2**32 - 1)),
        )
        sequences.append(Sequence(params=params, n_tokens=N_TOKENS))
    logits = tie_free_logits(rng, n_vocab + 8000, 2.0)
    result = compare(logits, n_vocab, sequences, vocabulary=vocabularies[name])
    assert not len(result.differing)
    n_ends = int((result.theirs == end).sum())
    assert 0.02 * len(result.theirs) < n_ends < 0.98 * len(result.theirs)


def test_infill_counts_what_begins_alike_together(vocabularies: dict[str, Vocabulary]) -> None:
    # Without this the comparison above could pass without a token ever merged.
    the, they, end = 278, 896, 2  # " the", " they"
    likely = {the: 0.17, they: 0.16, 500: 0.17, 897: 0.17, 898: 0.17, 916: 0.16, end: 1e-9}
    logits = np.full(32000, -np.inf, np.float32)
    logits[list(likely)] = np.log(list(likely.values()))
    sampler = Sampler(32000)
    sampler.reset(Params(samplers=("infill",)), vocabulary=vocabularies["llama-spm"])
    assert sampler.sample(logits) == the
    # By itself each is below 0.2, and only these two add up to more.
    assert set(sampler.candidates()["token"]) == {the, end}


def repetitive_text(
    rng: np.random.Generator, breakers: list[tuple[int, ...]]
) -> tuple[list[int], tuple[int, ...]]:
    """Some tokens, and a text of few phrases of them, among them breakers of every length."""
    single = {breaker[0] for breaker in breakers if len(breaker) == 1}
    longer = [breaker for breaker in breakers if len(breaker) > 1]
    twofold = [breaker for breaker in longer if breaker[0] in single]
    assert twofold
    one = int(rng.choice(sorted(single)))
    phrases: list[tuple[int, ...]] = [(700,), (800,), (one,)]
    phrases += [pool[int(rng.integers(len(pool)))] for pool in (longer, twofold)]
    phrases.append(phrases[-1][:1])
    text = [phrases[i] for i in rng.integers(0, len(phrases), 40)]
    words = sorted({word for phrase in phrases for word in phrase})
    return words, tuple(word for phrase in text for word in phrase)


@pytest.mark.parametrize(
    ("name", "n_vocab", "n"), [("llama-spm", 32000, 200), ("gpt-2", 50257, 40)]
)
def test_dry_with_sequence_breakers_draws_llama_cpps_tokens(
    vocabularies: dict[str, Vocabulary], name: str, n_vocab: int, n: int
) -> None:
    rng = np.random.default_rng(8)
    breakers = vocabularies[name].breakers()
    sequences = []
    for _ in range(n):
        words, prompt = repetitive_text(rng, breakers)
        params = replace(
            with_sampler(rng, off(), "dry"),
            top_k=int(rng.choice([0, 40])),
            seed=int(rng.integers(2**32 - 1)),
            logit_bias=tuple((word, 14.0) for word in words),
        )
        sequences.append(Sequence(params=params, n_tokens=N_TOKENS, prompt=prompt))
    logits = tie_free_logits(rng, n_vocab + 8000, 0.7)
    result = compare(logits, n_vocab, sequences, vocabulary=vocabularies[name])
    assert len(result.ours) == n * N_TOKENS
    assert not len(result.differing)


def test_dry_penalises_what_a_breaker_does_not_protect(
    vocabularies: dict[str, Vocabulary],
) -> None:
    # Without this the comparison above could pass with DRY never in action.
    vocabulary = vocabularies["llama-spm"]
    params = Params(dry_multiplier=5.0, dry_allowed_length=1, temperature=0.0)
    newline = 13  # "\n" in this vocabulary, a breaker by itself
    logits = np.zeros(32000, np.float32)
    logits[[500, 600]] = 9.0, 8.0
    repeating = (700, 500, 700)  # 500 would repeat "700 500"
    sampler = Sampler(32000)
    sampler.reset(params, prompt=repeating, vocabulary=vocabulary)
    assert sampler.sample(logits) == 600
    sampler.reset(params, prompt=(*repeating, newline), vocabulary=vocabulary)
    assert sampler.sample(logits) == 500
