"""Seeded random logits and sampling parameters for the sampling tests."""

from dataclasses import replace

import numpy as np

from tests.support.sampling.sampling_library import Floats
from tests.support.sampling.sampling_params import SAMPLERS, Params, Sequence


def tie_free_logits(rng: np.random.Generator, n: int, scale: float) -> Floats:
    """n different normal numbers with the given standard deviation, float32, shape (n,)."""
    logits = np.unique((rng.standard_normal(2 * n + 64) * scale).astype(np.float32))
    rng.shuffle(logits)
    return np.ascontiguousarray(logits[:n])


def off() -> Params:
    """Nothing but the draw."""
    return Params(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


def with_sampler(rng: np.random.Generator, params: Params, name: str) -> Params:
    """The parameters with one sampler on, its own parameters random."""

    def pick(*values: float) -> float:
        return float(rng.choice(values))

    def uniform(low: float, high: float) -> float:
        return float(rng.uniform(low, high))

    match name:
        case "penalties":
            return replace(
                params,
                repeat_last_n=int(pick(1, 7, 64, 1000)),
                repeat_penalty=pick(1, 1.1, 1.7, 0.8),
                frequency_penalty=pick(0, 0.2, -0.3, uniform(0, 1)),
                presence_penalty=pick(0.5, -0.2, uniform(0.1, 1)),
            )
        case "dry":
            return replace(
                params,
                dry_multiplier=pick(0.5, 0.8, 2),
                dry_base=pick(1.0, 1.3, 1.75, 3),
                dry_allowed_length=int(pick(0, 1, 2, 4)),
                dry_penalty_last_n=int(pick(3, 20, 64, 2000)),
            )
        case "top_n_sigma":
            return replace(params, top_n_sigma=pick(0.3, 1, 2.5, uniform(0.1, 3)))
        case "top_k":
            return replace(params, top_k=int(pick(1, 2, 10, 40, 130, 500, 5000)))
        case "typ_p":
            return replace(params, typical_p=pick(0, 0.1, 0.5, 0.9, 0.99, uniform(0, 1)))
        case "top_p":
            return replace(params, top_p=pick(0, 0.1, 0.5, 0.95, 0.999, uniform(0, 1)))
        case "min_p":
            return replace(params, min_p=pick(0.01, 0.05, 0.3, 0.9, 1, uniform(0, 1)))
        case "xtc":
            return replace(
                params, xtc_probability=pick(0.1, 0.5, 1), xtc_threshold=pick(0.01, 0.1, 0.3, 0.5)
            )
        case "temperature":
            return replace(params, temperature=pick(0, 0.3, 0.8, 1.5, 3, uniform(0.1, 2)))
        case "dynamic_temperature":
            return replace(
                with_sampler(rng, params, "temperature"),
                dynatemp_range=uniform(0.01, 1.2),
                dynatemp_exponent=pick(0.5, 1, 2.3),
            )
        case "mirostat_1" | "mirostat_2":
            return replace(
                params,
                mirostat=int(name[-1]),
                mirostat_tau=pick(1, 3, 5, 9),
                mirostat_eta=pick(0.05, 0.1, 0.5),
            )
        case "adaptive_p":
            return replace(
                params,
                adaptive_p=True,
                adaptive_target=pick(-1, 0, 0.05, 0.3, 0.7, 1, uniform(0, 1)),
                adaptive_decay=pick(0, 0.5, 0.9, 0.99),
            )
        case "logit_bias":
            n = int(rng.integers(1, 8))
            return replace(
                params,
                logit_bias=tuple(
                    (int(rng.integers(0, 16)), pick(-np.inf, -2.5, 1.3, 5)) for _ in range(n)
                ),
            )
    raise ValueError(name)


def mixed(rng: np.random.Generator, n_vocab: int) -> Params:
    """Random samplers, half of the time in random order and some twice."""
    names = list(SAMPLERS)
    if rng.random() < 0.5:
        names = [SAMPLERS[i] for i in rng.permutation(len(SAMPLERS))[: rng.integers(0, 10)]]
        if names and rng.random() < 0.3:
            names.append(names[int(rng.integers(len(names)))])
    params = replace(off(), samplers=tuple(names), min_keep=int(rng.choice([0, 0, 1, 3, 20])))
    for name in (*SAMPLERS, "dynamic_temperature"):
        if rng.random() < 0.4:
            params = with_sampler(rng, params, name)
    if n_vocab > 16 and rng.random() < 0.3:
        params = with_sampler(rng, params, "logit_bias")
    if rng.random() < 0.1:
        params = with_sampler(rng, params, f"mirostat_{rng.integers(1, 3)}")
    return params


def sequence(rng: np.random.Generator, params: Params, n_vocab: int, n_tokens: int) -> Sequence:
    """A generation with a random seed after a prompt that repeats itself more or less."""
    n_words = min(n_vocab, int(rng.choice([3, 8, 60, n_vocab])))
    prompt = rng.integers(0, n_words, int(rng.integers(0, 80)))
    seed = int(rng.integers(0, 2**32 - 1))
    return Sequence(
        params=replace(params, seed=seed),
        n_tokens=n_tokens,
        prompt=tuple(int(token) for token in prompt),
    )
