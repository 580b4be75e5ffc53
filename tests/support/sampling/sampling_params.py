"""Sampling parameters of a test, and their form in C (csrc/sampling/chain/sampling_params.h)."""

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass, field, fields

# In llama-server's default order.
SAMPLERS = (
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
# The position is the number of SamplerKind.
LINKS = (*SAMPLERS, "infill")
_MAX_CHAIN = 16


class NativeParams(ctypes.Structure):
    _fields_ = (
        ("seed", ctypes.c_uint32),
        ("temperature", ctypes.c_float),
        ("dynatemp_range", ctypes.c_float),
        ("dynatemp_exponent", ctypes.c_float),
        ("top_k", ctypes.c_int32),
        ("top_p", ctypes.c_float),
        ("min_p", ctypes.c_float),
        ("typical_p", ctypes.c_float),
        ("top_n_sigma", ctypes.c_float),
        ("xtc_probability", ctypes.c_float),
        ("xtc_threshold", ctypes.c_float),
        ("repeat_last_n", ctypes.c_int32),
        ("repeat_penalty", ctypes.c_float),
        ("frequency_penalty", ctypes.c_float),
        ("presence_penalty", ctypes.c_float),
        ("dry_multiplier", ctypes.c_float),
        ("dry_base", ctypes.c_float),
        ("dry_allowed_length", ctypes.c_int32),
        ("dry_penalty_last_n", ctypes.c_int32),
        ("mirostat", ctypes.c_int32),
        ("mirostat_tau", ctypes.c_float),
        ("mirostat_eta", ctypes.c_float),
        ("adaptive_p", ctypes.c_bool),
        ("adaptive_target", ctypes.c_float),
        ("adaptive_decay", ctypes.c_float),
        ("min_keep", ctypes.c_int32),
        ("n_chain", ctypes.c_int32),
        ("chain", ctypes.c_uint8 * _MAX_CHAIN),
    )


class NativeBias(ctypes.Structure):
    _fields_ = (("token", ctypes.c_int32), ("bias", ctypes.c_float))


class NativeSequence(ctypes.Structure):
    _fields_ = (
        ("params", NativeParams),
        ("bias_begin", ctypes.c_int32),
        ("n_biases", ctypes.c_int32),
        ("prompt_begin", ctypes.c_int32),
        ("n_prompt", ctypes.c_int32),
        ("n_tokens", ctypes.c_int32),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Sampling parameters with llama-server's defaults, and the biases that go with them."""

    seed: int = 0
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
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    adaptive_p: bool = False
    adaptive_target: float = -1.0
    adaptive_decay: float = 0.9
    min_keep: int = 0
    samplers: tuple[str, ...] = SAMPLERS
    logit_bias: tuple[tuple[int, float], ...] = ()

    def native(self) -> NativeParams:
        kinds = [LINKS.index(name) for name in self.samplers]
        native = NativeParams(n_chain=len(kinds), chain=(ctypes.c_uint8 * _MAX_CHAIN)(*kinds))
        for item in fields(self):
            if item.name not in ("samplers", "logit_bias"):
                setattr(native, item.name, getattr(self, item.name))
        return native


def native_biases(biases: Iterable[tuple[int, float]]) -> "ctypes.Array[NativeBias]":
    """Never of length 0, so that there is a pointer."""
    natives = [NativeBias(token, bias) for token, bias in biases]
    return (NativeBias * max(len(natives), 1))(*natives)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence:
    """One generation: the prompt is accepted, then `n_tokens` are drawn."""

    params: Params
    n_tokens: int
    prompt: tuple[int, ...] = field(default=())
