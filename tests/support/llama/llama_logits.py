"""Log probabilities of prompts by llama.cpp alone, through llama_cpp's binding, in a process of its
own.

    python tests/support/llama/llama_logits.py MODEL N_CHUNK < prompts.json > logprobs.json

In: a list of token-id lists. Out: for each, the natural logarithms of the plain softmax of
llama.cpp's logits at every token but the first, and of the most probable token there. llama_decode
gets N_CHUNK tokens at a time: its logits depend a little on that.
"""

import json
import sys

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from engine_ext import cpu_library

# A portable build has no backend before one is chosen: llama_cpp's code chooses none.
cpu_library()


def logits_of(
    context: object, n_vocab: int, prompt: list[int], n_chunk: int
) -> NDArray[np.float64]:
    """(len(prompt), n_vocab) logits."""
    llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
    batch = llama_cpp.llama_batch_init(n_chunk, 0, 1)
    rows = []
    for begin in range(0, len(prompt), n_chunk):
        chunk = prompt[begin : begin + n_chunk]
        batch.n_tokens = len(chunk)
        for i, token in enumerate(chunk):
            batch.token[i], batch.pos[i], batch.logits[i] = token, begin + i, 1
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
        assert llama_cpp.llama_decode(context, batch) == 0
        for i in range(len(chunk)):
            row = llama_cpp.llama_get_logits_ith(context, i)
            rows.append(np.ctypeslib.as_array(row, (n_vocab,)).astype(np.float64))
    llama_cpp.llama_batch_free(batch)
    return np.stack(rows)


def main() -> None:
    """Read, compute, write."""
    n_chunk = int(sys.argv[2])
    prompts: list[list[int]] = json.load(sys.stdin)
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(
        sys.argv[1].encode(), llama_cpp.llama_model_default_params()
    )
    parameters = llama_cpp.llama_context_default_params()
    parameters.n_ctx = 1024
    parameters.n_batch = parameters.n_ubatch = parameters.n_outputs_max = 512
    parameters.n_threads = parameters.n_threads_batch = 1
    context = llama_cpp.llama_init_from_model(model, parameters)
    n_vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    answers = []
    for prompt in prompts:
        logits = logits_of(context, n_vocab, prompt, n_chunk)[:-1]
        best = logits.max(axis=1, keepdims=True)
        logprobs = logits - best - np.log(np.exp(logits - best).sum(axis=1, keepdims=True))
        rows = np.arange(len(prompt) - 1)
        answers.append(
            {"token": logprobs[rows, prompt[1:]].tolist(), "best": logprobs.max(axis=1).tolist()}
        )
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
