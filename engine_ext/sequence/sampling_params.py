"""How the next token is chosen: llama-server's parameters, checked once."""

import math
from dataclasses import dataclass, fields
from typing import Final

RANDOM_SEED: Final = 0xFFFFFFFF
"""The seed that means "draw one", as in llama.cpp."""

SAMPLERS: Final = (
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
"""The chain, in llama-server's default order."""

INFILL: Final = "infill"
"""A link that is not in the default chain."""

LINKS: Final = (*SAMPLERS, INFILL)
"""Links by the number of csrc's SamplerKind."""

ADAPTIVE_P: Final = "adaptive_p"
"""Wherever it stands among `samplers`, it makes the draw at the end of the chain."""

_INT32_MAX: Final = 2**31 - 1
_MAX_CHAIN: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Parameters of the sampling core; names, defaults and meaning are llama-server's.

    `top_k` <= 0, `top_p` >= 1, `min_p` <= 0, `typical_p` >= 1, `top_n_sigma` < 0, `xtc_probability`
    <= 0, `repeat_penalty` 1 with zero frequency and presence penalty, `dry_multiplier` 0 and
    `mirostat` 0 are "off". `temperature` <= 0 is greedy. `seed` `RANDOM_SEED` draws one.
    `adaptive_target` and `adaptive_decay` count where `samplers` names `ADAPTIVE_P`.
    Penalties look at the last `repeat_last_n` tokens, prompt included.

    Raises: ValueError, its text beginning with the field's name.
    Source: llama.cpp 0c1e57098, common/common.h (defaults), src/llama-sampler.cpp (meaning).
    """

    seed: int = RANDOM_SEED
    temperature: float = 0.8
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    top_n_sigma: float = -1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    repeat_last_n: int = 64
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = 64
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    adaptive_target: float = -1.0
    adaptive_decay: float = 0.9
    min_keep: int = 0
    samplers: tuple[str, ...] = SAMPLERS
    logit_bias: tuple[tuple[int, float], ...] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{field.name}: must be finite, but got {value}")
            if isinstance(value, int) and abs(value) > _INT32_MAX and field.name != "seed":
                raise ValueError(f"{field.name}: must fit 32 bits, but got {value}")
        self._check_ranges()
        for name in self.samplers:
            if name not in LINKS and name != ADAPTIVE_P:
                raise ValueError(f"samplers: unknown sampler {name!r}")
        if len(self.samplers) > _MAX_CHAIN:
            raise ValueError(f"samplers: at most {_MAX_CHAIN}, but got {len(self.samplers)}")
        for token, bias in self.logit_bias:
            if token < 0 or math.isnan(bias) or bias == math.inf:
                raise ValueError(f"logit_bias: bad entry ({token}, {bias})")

    def with_seed(self, seed: int) -> "SamplingParams":
        """The same with another seed, made without another check of the rest.

        Raises: ValueError.
        """
        made = object.__new__(SamplingParams)
        for name in SamplingParams.__slots__:
            object.__setattr__(made, name, getattr(self, name))
        object.__setattr__(made, "seed", seed)
        made._check_seed()
        return made

    def _check_seed(self) -> None:
        if not 0 <= self.seed <= RANDOM_SEED:
            raise ValueError(f"seed: must be from 0 to {RANDOM_SEED}, but got {self.seed}")

    def _check_ranges(self) -> None:
        self._check_seed()
        if self.repeat_penalty <= 0:
            raise ValueError(f"repeat_penalty: must be > 0, but got {self.repeat_penalty}")
        for name, low in (
            ("repeat_last_n", 0),
            ("dry_allowed_length", 0),
            ("dry_penalty_last_n", -1),
            ("min_keep", 0),
        ):
            if getattr(self, name) < low:
                raise ValueError(f"{name}: must be >= {low}, but got {getattr(self, name)}")
        if not 0 <= self.adaptive_decay <= 0.99:
            raise ValueError(f"adaptive_decay: must be 0 to 0.99, but got {self.adaptive_decay}")
        if self.mirostat not in (0, 1, 2):
            raise ValueError(f"mirostat: must be 0, 1 or 2, but got {self.mirostat}")
        if self.dry_multiplier != 0 and not self.dry_sequence_breakers:
            raise ValueError("dry_sequence_breakers: must not be empty")
