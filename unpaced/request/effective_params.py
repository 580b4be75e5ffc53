"""`generation_settings` of a response and the defaults in /props: llama-server's keys and order.

Source: llama.cpp 0c1e57098, tools/server/server-task.cpp (task_params::to_json).
"""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Final

from engine_ext import RANDOM_SEED, SamplingParams
from unpaced.grammar.spec import GrammarSpec, trigger_json
from unpaced.schemas.lora import Scales, scales_to_json

_F32: Final = struct.Struct("f")
# In the order of `_chain_json`.
_floats: Final = attrgetter(
    "temperature", "dynatemp_range", "dynatemp_exponent", "top_p", "min_p", "top_n_sigma",
    "xtc_probability", "xtc_threshold", "typical_p", "repeat_penalty", "presence_penalty",
    "frequency_penalty", "dry_multiplier", "dry_base", "mirostat_tau", "mirostat_eta",
    "adaptive_target", "adaptive_decay",
)  # fmt: skip
_FLOATS: Final = struct.Struct("18f")


@dataclass(frozen=True, slots=True)
class EffectiveParams:
    """What a request asked for, its defaults filled in."""

    sampling: SamplingParams
    n_predict: int = -1
    stop: tuple[str, ...] = ()
    n_keep: int = 0
    n_discard: int = 0
    stream: bool = False
    n_probs: int = 0
    timings_per_token: bool = False
    post_sampling_probs: bool = False
    backend_sampling: bool = False
    grammar: GrammarSpec | None = None
    preserved_tokens: tuple[int, ...] = ()
    reasoning_format: str = "none"
    generation_prompt: str = ""
    lora: Scales = ()

    def of_child(self, child: int) -> "EffectiveParams":
        """For choice number `child` of a prompt: seeds follow one another, as in llama-server."""
        seed = self.sampling.seed
        if child == 0 or seed == RANDOM_SEED:
            return self
        sampling = replace(self.sampling, seed=(seed + child) & RANDOM_SEED)
        return replace(self, sampling=sampling)

    def to_json(self, eog_tokens: Sequence[int] = ()) -> dict[str, Any]:
        """What a response tells. `eog_tokens` are shown as banned where `ignore_eos` is on."""
        s = self.sampling
        chain, adaptive = _chain_json(s)
        return {
            **chain,
            "dry_sequence_breakers": list(s.dry_sequence_breakers),
            **adaptive,
            "stop": list(self.stop),
            **self._limits_json(),
            "logit_bias": self._biases(eog_tokens),
            "n_probs": self.n_probs,
            "min_keep": s.min_keep,
            **self._grammar(),
            **self._shape_json(),
        }

    def to_defaults_json(self) -> dict[str, Any]:
        """What /props tells: no stop strings, biases, grammar and DRY breakers."""
        chain, adaptive = _chain_json(self.sampling)
        return {
            **chain,
            **adaptive,
            **self._limits_json(),
            "n_probs": self.n_probs,
            "min_keep": self.sampling.min_keep,
            **self._shape_json(),
        }

    def _limits_json(self) -> dict[str, Any]:
        return {
            "max_tokens": self.n_predict,
            "n_predict": self.n_predict,
            "n_keep": self.n_keep,
            "n_discard": self.n_discard,
            "ignore_eos": self.sampling.ignore_eos,
            "stream": self.stream,
        }

    def _shape_json(self) -> dict[str, Any]:
        return {
            "chat_format": "Content-only",
            "reasoning_format": self.reasoning_format,
            "reasoning_in_content": self.stream and self.reasoning_format == "deepseek-legacy",
            "generation_prompt": self.generation_prompt,
            "samplers": list(self.sampling.samplers),
            "speculative.types": "none",
            "timings_per_token": self.timings_per_token,
            "post_sampling_probs": self.post_sampling_probs,
            "backend_sampling": self.backend_sampling,
            "lora": scales_to_json(self.lora),
        }

    def _grammar(self) -> dict[str, Any]:
        spec = self.grammar
        triggers = () if spec is None else spec.triggers
        return {
            "grammar": "" if spec is None else spec.shown,
            "grammar_lazy": bool(triggers),
            "grammar_triggers": [trigger_json(trigger) for trigger in triggers],
            "preserved_tokens": list(self.preserved_tokens),
        }

    def _biases(self, eog_tokens: Sequence[int]) -> list[dict[str, Any]]:
        biases = list(self.sampling.logit_bias)
        if self.sampling.ignore_eos:
            biases += [(token, -math.inf) for token in eog_tokens]
        return [
            {"bias": _f32(bias) if math.isfinite(bias) else None, "token": token}
            for token, bias in biases
        ]


def _chain_json(s: SamplingParams) -> tuple[dict[str, Any], dict[str, Any]]:
    """What comes before llama-server's `dry_sequence_breakers`, and from there to `stop`."""
    # All at once: one by one they took longer than the rest of an answer's end.
    (
        temperature, dynatemp_range, dynatemp_exponent, top_p, min_p, top_n_sigma, xtc_probability,
        xtc_threshold, typical_p, repeat_penalty, presence_penalty, frequency_penalty,
        dry_multiplier, dry_base, mirostat_tau, mirostat_eta, adaptive_target, adaptive_decay,
    ) = _FLOATS.unpack(_FLOATS.pack(*_floats(s)))  # fmt: skip
    chain = {
        "seed": s.seed,
        "temperature": temperature,
        "dynatemp_range": dynatemp_range,
        "dynatemp_exponent": dynatemp_exponent,
        "top_k": s.top_k,
        "top_p": top_p,
        "min_p": min_p,
        "top_n_sigma": top_n_sigma,
        "xtc_probability": xtc_probability,
        "xtc_threshold": xtc_threshold,
        "typical_p": typical_p,
        "repeat_last_n": s.repeat_last_n,
        "repeat_penalty": repeat_penalty,
        "presence_penalty": presence_penalty,
        "frequency_penalty": frequency_penalty,
        "dry_multiplier": dry_multiplier,
        "dry_base": dry_base,
        "dry_allowed_length": s.dry_allowed_length,
        "dry_penalty_last_n": s.dry_penalty_last_n,
    }
    adaptive = {
        "mirostat": s.mirostat,
        "mirostat_tau": mirostat_tau,
        "mirostat_eta": mirostat_eta,
        "adaptive_target": adaptive_target,
        "adaptive_decay": adaptive_decay,
    }
    return chain, adaptive


def _f32(value: float) -> float:
    """The 32-bit float that the engine uses, as llama-server prints it."""
    return float(_F32.unpack(_F32.pack(value))[0])
