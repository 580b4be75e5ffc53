"""What llama.cpp makes of the exported file: its tokens, its logits, its samples."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import llama_cpp
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Sampling:
    """llama.cpp's sampler chain for the samples in the documentation, in this order."""

    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    temperature: float = 0.8


class LlamaModel:
    """A GGUF file in llama.cpp, one sequence at a time, on the CPU."""

    def __init__(self, path: Path, *, n_ctx: int = 0, n_threads: int = 1) -> None:
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = 0
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        if not self._model:
            raise ValueError(f"llama.cpp does not load {path}")
        context_params = llama_cpp.llama_context_default_params()
        context_params.n_ctx = n_ctx or llama_cpp.llama_model_n_ctx_train(self._model)
        context_params.n_threads = context_params.n_threads_batch = n_threads
        self._context = llama_cpp.llama_init_from_model(self._model, context_params)
        self._vocab = llama_cpp.llama_model_get_vocab(self._model)
        self.n_vocab: int = llama_cpp.llama_vocab_n_tokens(self._vocab)
        self.n_ctx: int = llama_cpp.llama_n_ctx(self._context)

    def close(self) -> None:
        llama_cpp.llama_free(self._context)
        llama_cpp.llama_model_free(self._model)

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        data = text.encode()
        ids = (llama_cpp.llama_token * (len(data) + 8))()
        n_ids = llama_cpp.llama_tokenize(
            self._vocab, data, len(data), ids, len(ids), add_special, parse_special
        )
        return list(ids[:n_ids])

    def piece(self, token: int) -> bytes:
        buffer = ctypes.create_string_buffer(256)
        n_bytes = llama_cpp.llama_token_to_piece(self._vocab, token, buffer, 256, 0, False)
        return buffer.raw[:n_bytes]

    def logits(self, tokens: list[int]) -> NDArray[np.float32]:
        """Logits after every token: float32 of shape (len(tokens), n_vocab)."""
        self._clear()
        batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for index, token in enumerate(tokens):
            batch.token[index] = token
            batch.pos[index] = index
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = 0
            batch.logits[index] = True
        if llama_cpp.llama_decode(self._context, batch) != 0:
            raise RuntimeError("llama_decode failed")
        rows = [
            np.ctypeslib.as_array(
                llama_cpp.llama_get_logits_ith(self._context, index), (self.n_vocab,)
            ).copy()
            for index in range(len(tokens))
        ]
        llama_cpp.llama_batch_free(batch)
        return np.stack(rows)

    def generate(
        self, prompt: list[int], seed: int, sampling: Sampling, n_max: int
    ) -> tuple[list[int], bool]:
        """Sampled tokens without the end token, and whether the model ended the text itself."""
        self._clear()
        tokens: list[int] = []
        with _sampler_chain(seed, sampling) as chain:
            pending = prompt
            while len(tokens) < n_max:
                array = (llama_cpp.llama_token * len(pending))(*pending)
                batch = llama_cpp.llama_batch_get_one(array, len(pending))
                if llama_cpp.llama_decode(self._context, batch) != 0:
                    raise RuntimeError("llama_decode failed")
                token = llama_cpp.llama_sampler_sample(chain, self._context, -1)
                if llama_cpp.llama_vocab_is_eog(self._vocab, token):
                    return tokens, True
                tokens.append(token)
                pending = [token]
        return tokens, False

    def text(self, tokens: list[int]) -> str:
        return b"".join(map(self.piece, tokens)).decode(errors="replace")

    def _clear(self) -> None:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), True)


@contextmanager
def _sampler_chain(seed: int, sampling: Sampling) -> Iterator[object]:
    chain = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
    for sampler in (
        llama_cpp.llama_sampler_init_top_k(sampling.top_k),
        llama_cpp.llama_sampler_init_top_p(sampling.top_p, 0),
        llama_cpp.llama_sampler_init_min_p(sampling.min_p, 0),
        llama_cpp.llama_sampler_init_temp(sampling.temperature),
        llama_cpp.llama_sampler_init_dist(seed),
    ):
        llama_cpp.llama_sampler_chain_add(chain, sampler)
    try:
        yield chain
    finally:
        llama_cpp.llama_sampler_free(chain)
