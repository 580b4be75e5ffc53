"""Seeded random completion requests: every sampler alone, mixed chains, and what goes with them."""

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

PROMPTS: Final = (
    "Once upon a time",
    "The meaning of life is",
    "def fibonacci(n):\n    ",
    "1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 1, 2, 3,",
    "a b a b a b a b a b a b",
    'Ein Satz: "noch einer" * und mehr\nund mehr\nund mehr',
    "日本語の文章です。",
    "",
)
STOPS: Final = ("e", "a", "\n", " the", "in", "st", "er", "on", "xyzzy", "。", "er in", "}")
NAMES: Final = (
    "penalties",
    "dry",
    "top_n_sigma",
    "top_k",
    "typ_p",
    "top_p",
    "min_p",
    "xtc",
    "temperature",
)
Fields = dict[str, Any]
_OFF: Final[Fields] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


def _penalties(r: random.Random) -> Fields:
    return {
        "repeat_last_n": r.choice((1, 7, 64, 1000)),
        "repeat_penalty": r.choice((1.0, 1.1, 1.7, 0.8)),
        "frequency_penalty": r.choice((0.0, 0.2, -0.3, r.uniform(0, 1))),
        "presence_penalty": r.choice((0.5, -0.2, r.uniform(0.1, 1))),
    }


def _dry(r: random.Random) -> Fields:
    fields: Fields = {
        "dry_multiplier": r.choice((0.5, 0.8, 2.0)),
        "dry_base": r.choice((1.0, 1.3, 1.75, 3.0)),
        "dry_allowed_length": r.choice((0, 1, 2, 4)),
        "dry_penalty_last_n": r.choice((3, 20, 64, 2000)),
    }
    if r.random() < 0.5:
        fields["dry_sequence_breakers"] = r.choice((["\n"], [":", "and so"], ["a", "。"]))
    return fields


SAMPLERS: Final[dict[str, Callable[[random.Random], Fields]]] = {
    "penalties": _penalties,
    "dry": _dry,
    "top_n_sigma": lambda r: {"top_n_sigma": r.choice((0.3, 1.0, 2.5, r.uniform(0.1, 3)))},
    "top_k": lambda r: {"top_k": r.choice((1, 2, 10, 40, 130, 500, 5000))},
    "typ_p": lambda r: {"typical_p": r.choice((0.1, 0.5, 0.9, 0.99, r.uniform(0, 1)))},
    "top_p": lambda r: {"top_p": r.choice((0.1, 0.5, 0.95, 0.999, r.uniform(0, 1)))},
    "min_p": lambda r: {"min_p": r.choice((0.01, 0.05, 0.3, 0.9, r.uniform(0, 1)))},
    "xtc": lambda r: {
        "xtc_probability": r.choice((0.1, 0.5, 1.0)),
        "xtc_threshold": r.choice((0.01, 0.1, 0.3)),
    },
    "temperature": lambda r: {"temperature": r.choice((0.3, 0.8, 1.5, 3.0, r.uniform(0.1, 2)))},
    "dynatemp": lambda r: {
        "temperature": r.uniform(0.2, 1.5),
        "dynatemp_range": r.uniform(0.01, 1.2),
        "dynatemp_exponent": r.choice((0.5, 1.0, 2.3)),
    },
    "mirostat": lambda r: {
        "mirostat": r.choice((1, 2)),
        "mirostat_tau": r.choice((1.0, 3.0, 5.0, 9.0)),
        "mirostat_eta": r.choice((0.05, 0.1, 0.5)),
    },
    "adaptive_p": lambda r: {
        "samplers": ["top_k", "min_p", "temperature", "adaptive_p"],
        "adaptive_target": r.choice((-1.0, 0.05, 0.3, 0.7, r.uniform(0, 1))),
        "adaptive_decay": r.choice((0.0, 0.5, 0.9, 0.99)),
    },
    # Only few candidates: llama.cpp compares each with every other.
    "infill": lambda r: {
        "samplers": ["top_k", "temperature", "infill"],
        "top_k": r.choice((3, 10, 40, 100)),
        "temperature": r.choice((0.1, 0.3, 1.0)),
    },
}


def _chain(r: random.Random) -> Fields:
    """Samplers in random order, each with random values."""
    names = r.sample(NAMES, r.randint(0, len(NAMES)))
    fields: Fields = dict(_OFF)
    if r.random() < 0.5:
        fields["samplers"] = names
    for name in (*NAMES, "dynatemp"):
        if r.random() < 0.4:
            fields |= SAMPLERS[name](r)
    fields["min_keep"] = r.choice((0, 0, 1, 3, 20))
    return fields


def _around(r: random.Random, n_vocab: int, eos: int, prompts: Sequence[str]) -> Fields:
    """Prompt, lengths, stops, biases, probabilities: what goes with any chain."""
    fields: Fields = {
        "prompt": r.choice(prompts),
        "n_predict": r.choice((1, 8, 16, 24, 40)),
        "seed": r.randrange(2**32 - 1),
        "return_tokens": True,
        "cache_prompt": False,
    }
    if r.random() < 0.15:
        fields["prompt"] = [r.randrange(3, n_vocab) for _ in range(r.randint(1, 40))]
    if r.random() < 0.4:
        fields["stop"] = r.sample(STOPS, r.randint(1, 3))
    biases: list[list[Any]] = []
    if r.random() < 0.3:
        biases += [[r.randrange(n_vocab), r.choice((-5.0, 3.5, 8.0, False))] for _ in range(5)]
        biases.append(["the", 2.5])
    if r.random() < 0.25:
        biases.append([eos, r.choice((6.0, 9.0, 12.0))])
    if biases:
        fields["logit_bias"] = biases
    if r.random() < 0.2:
        fields["ignore_eos"] = True
    if r.random() < 0.35:
        fields["n_probs"] = r.choice((1, 5, 20))
        fields["post_sampling_probs"] = r.random() < 0.5
    return fields


def make_requests(
    n: int, n_vocab: int, eos: int, seed: int, *, prompts: Sequence[str] = PROMPTS
) -> list[tuple[str, Fields]]:
    """`n` requests with the name of their kind: greedy, one sampler, one in the usual chain, mixed.

    A fifth is greedy; `eos` is an end-of-generation token.
    """
    r = random.Random(seed)
    alone = list(SAMPLERS)
    requests: list[tuple[str, Fields]] = []
    for i in range(n):
        if i % 5 == 0:
            kind, fields = "greedy", {"temperature": 0.0}
            if r.random() < 0.4:
                fields |= r.choice((_penalties, _dry))(r)
        elif i % 5 == 1:
            name = alone[i // 5 % len(alone)]
            kind, fields = f"{name} alone", _OFF | SAMPLERS[name](r)
        elif i % 5 == 2:
            name = alone[i // 5 % len(alone)]
            kind, fields = f"{name} in the default chain", SAMPLERS[name](r)
        else:
            kind, fields = "mixed chain", _chain(r)
        requests.append((kind, _around(r, n_vocab, eos, prompts) | fields))
    return requests
