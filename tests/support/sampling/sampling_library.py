"""The sampling core and llama.cpp's samplers, side by side (sampling_capi.cpp)."""

import ctypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tests.support.sampling.sampling_build import compiled_library
from tests.support.sampling.sampling_params import (
    NativeSequence,
    Params,
    Sequence,
    native_biases,
)

Floats = npt.NDArray[np.float32]
Tokens = npt.NDArray[np.int32]

_CANDIDATE = np.dtype([("token", np.int32), ("logit", np.float32), ("p", np.float32)])
_LOGPROB = np.dtype([("token", np.int32), ("logprob", np.float32)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Tokens of the same draws; -1 is no token."""

    ours: Tokens
    theirs: Tokens
    undefined: npt.NDArray[np.bool_]
    """llama.cpp's logits overflowed: its probabilities are NaN, and it takes the last candidate."""

    @property
    def differing(self) -> Tokens:
        """Numbers of the draws that differ although llama.cpp's result is defined."""
        found = np.flatnonzero((self.ours != self.theirs) & ~self.undefined)
        return found.astype(np.int32)


@cache
def library() -> ctypes.CDLL:
    """Compiles the library if it is stale (half a minute) and loads it."""
    lib = ctypes.CDLL(str(compiled_library()))
    for name in ("sampling_new", "sampling_load_vocabulary"):
        getattr(lib, name).restype = ctypes.c_void_p
    lib.sampling_kernels.restype = ctypes.c_char_p
    lib.sampling_exp_differences.restype = ctypes.c_int64
    if lib.sampling_sizeof_sequence_spec() != ctypes.sizeof(NativeSequence):
        raise RuntimeError(
            "SamplingParams changed: tests/support/sampling/sampling_params.py must follow"
        )
    return lib


class Vocabulary:
    """A loaded vocabulary with DRY's sequence breakers in token form."""

    def __init__(self, path: Path, breakers: tuple[str, ...]) -> None:
        strings = (ctypes.c_char_p * len(breakers))(*(text.encode() for text in breakers))
        self.handle = library().sampling_load_vocabulary(str(path).encode(), strings, len(breakers))
        if self.handle is None:
            raise ValueError(f"{path}: not a vocabulary")

    def close(self) -> None:
        library().sampling_free_vocabulary(ctypes.c_void_p(self.handle))

    def breakers(self) -> list[tuple[int, ...]]:
        """Each breaker as (head, tail...)."""
        n = library().sampling_breakers(ctypes.c_void_p(self.handle), None, 0)
        flat = np.zeros(n, np.int32)
        library().sampling_breakers(ctypes.c_void_p(self.handle), _pointer(flat), n)
        found = []
        position = 0
        while position < n:
            n_tail = int(flat[position + 1])
            tail = flat[position + 2 : position + 2 + n_tail]
            found.append((int(flat[position]), *(int(token) for token in tail)))
            position += 2 + n_tail
        return found


def _pointer(array: npt.NDArray[np.generic]) -> ctypes.c_void_p:
    assert array.flags.c_contiguous
    return array.ctypes.data_as(ctypes.c_void_p)  # keeps the array alive


def _handle(vocabulary: Vocabulary | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if vocabulary is None else vocabulary.handle)


class Sampler:
    """Our sampler, for one vocabulary size."""

    def __init__(self, n_vocab: int, n_ctx: int = 4096) -> None:
        self._n_vocab = n_vocab
        self._handle = ctypes.c_void_p(library().sampling_new(n_vocab, n_ctx))
        self._borrowed: object = None

    def __del__(self) -> None:
        library().sampling_free(self._handle)

    def reset(
        self,
        params: Params,
        *,
        prompt: tuple[int, ...] = (),
        vocabulary: Vocabulary | None = None,
    ) -> None:
        biases = native_biases(params.logit_bias)
        self._borrowed = (biases, vocabulary)
        tokens = np.array(prompt, np.int32)
        library().sampling_reset(
            self._handle,
            ctypes.byref(params.native()),
            biases,
            len(params.logit_bias),
            _handle(vocabulary),
            _pointer(tokens),
            len(prompt),
        )

    def sample(self, logits: Floats) -> int | None:
        """A token, or None if the logits are not finite."""
        assert logits.dtype == np.float32 and logits.shape == (self._n_vocab,)
        token: int = library().sampling_sample(self._handle, _pointer(logits))
        return None if token < 0 else token

    def accept(self, token: int) -> None:
        library().sampling_accept(self._handle, token)

    def candidates(self, n_max: int = 2**31 - 1) -> npt.NDArray[np.void]:
        out = np.zeros(self._n_vocab, _CANDIDATE)
        n = library().sampling_candidates(self._handle, n_max, _pointer(out))
        return out[:n]

    def draw_many(self, logits: Floats, n: int) -> Tokens:
        """n draws from the same logits; none is accepted."""
        out = np.zeros(n, np.int32)
        library().sampling_draw_many(self._handle, _pointer(logits), n, _pointer(out))
        return out


def compare(
    logits: Floats,
    n_vocab: int,
    sequences: list[Sequence],
    *,
    vocabulary: Vocabulary | None = None,
    n_ctx: int = 4096,
) -> Comparison:
    """Tokens of both samplers, draw by draw; draw i sees a window of `logits` that depends on i.

    Both samplers accept llama.cpp's token.
    """
    specs = (NativeSequence * len(sequences))()
    biases: list[tuple[int, float]] = []
    prompts: list[int] = []
    for spec, sequence in zip(specs, sequences, strict=True):
        spec.params = sequence.params.native()
        spec.bias_begin, spec.n_biases = len(biases), len(sequence.params.logit_bias)
        spec.prompt_begin, spec.n_prompt = len(prompts), len(sequence.prompt)
        spec.n_tokens = sequence.n_tokens
        biases += sequence.params.logit_bias
        prompts += sequence.prompt
    n_draws = sum(sequence.n_tokens for sequence in sequences)
    ours = np.full(n_draws, -2, np.int32)
    theirs = np.full(n_draws, -2, np.int32)
    undefined = np.zeros(n_draws, np.bool_)
    library().sampling_compare(
        _pointer(logits),
        len(logits),
        n_vocab,
        n_ctx,
        specs,
        len(sequences),
        native_biases(biases),
        _pointer(np.array(prompts, np.int32)),
        _handle(vocabulary),
        _pointer(ours),
        _pointer(theirs),
        _pointer(undefined),
    )
    return Comparison(ours=ours, theirs=theirs, undefined=undefined)


def reference_sample(
    logits: Floats,
    params: Params,
    *,
    prompt: tuple[int, ...] = (),
    vocabulary: Vocabulary | None = None,
) -> tuple[int, npt.NDArray[np.void]]:
    """llama.cpp's token and the candidates it had left, in its order."""
    left = np.zeros(len(logits), _CANDIDATE)
    n_left = ctypes.c_int32()
    token: int = library().reference_sample(
        _pointer(logits),
        len(logits),
        ctypes.byref(params.native()),
        native_biases(params.logit_bias),
        len(params.logit_bias),
        _handle(vocabulary),
        _pointer(np.array(prompt, np.int32)),
        len(prompt),
        _pointer(left),
        ctypes.byref(n_left),
    )
    return token, left[: n_left.value]


def top_logprobs(logits: Floats, n: int, token: int) -> tuple[npt.NDArray[np.void], float]:
    """The n best (token, logprob) of the plain softmax, and the logprob of `token`."""
    best = np.zeros(len(logits), _LOGPROB)
    of_token = ctypes.c_float()
    n_best = library().sampling_logprobs(
        _pointer(logits), len(logits), n, token, _pointer(best), ctypes.byref(of_token)
    )
    return best[:n_best], of_token.value


def time_draws(
    logits: Floats, n_vocab: int, sequence: Sequence, *, vocabulary: Vocabulary | None = None
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Microseconds of each draw by our sampler and by llama.cpp's, drawn in turns."""
    spec = NativeSequence(params=sequence.params.native(), n_tokens=sequence.n_tokens)
    spec.n_biases, spec.n_prompt = len(sequence.params.logit_bias), len(sequence.prompt)
    ours = np.zeros(sequence.n_tokens, np.float64)
    theirs = np.zeros(sequence.n_tokens, np.float64)
    library().sampling_time(
        _pointer(logits),
        len(logits),
        n_vocab,
        ctypes.byref(spec),
        native_biases(sequence.params.logit_bias),
        _pointer(np.array(sequence.prompt, np.int32)),
        _handle(vocabulary),
        sequence.n_tokens,
        _pointer(ours),
        _pointer(theirs),
    )
    return ours, theirs


def exp_differences() -> dict[str, tuple[int, int]]:
    """For each kernel set of this CPU: floats whose exp is not libm's, and floats compared."""
    found = {}
    for level in range(3):
        name: bytes | None = library().sampling_kernels(level)
        if name is not None:
            n_compared = ctypes.c_int64()
            n_different = library().sampling_exp_differences(level, ctypes.byref(n_compared))
            found[name.decode()] = (int(n_different), n_compared.value)
    return found
