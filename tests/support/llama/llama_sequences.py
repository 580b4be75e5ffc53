"""How far llama.cpp's logits lie apart with weights as in the file and rearranged for the
processor, through llama_cpp's binding, in a process of its own: what is wrong there may end it.

    python tests/support/llama/llama_sequences.py MODEL > apart.json

Out: for each type of weights, the root of the mean square of a token's differences, in standard
deviations of the logits: the median of a sequence's tokens in a batch, of the sequence and batch
where it is largest. The median, because a few tokens of a random model multiply any rounding.
"""

import ctypes
import json
import sys
from pathlib import Path

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from engine_ext import cpu_library

# A portable build has no backend before one is chosen: llama_cpp's code chooses none.
cpu_library()

# What AMX takes, and what llama_model_quantize makes all of a model's matrices: llama_ftype.
FILE_TYPES = {
    "F16": llama_cpp.LLAMA_FTYPE_MOSTLY_F16,
    "Q4_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0,
    "Q4_1": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_1,
    "Q8_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0,
    "Q4_K": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_S,
    "Q5_K": llama_cpp.LLAMA_FTYPE_MOSTLY_Q5_K_S,
    "Q6_K": llama_cpp.LLAMA_FTYPE_MOSTLY_Q6_K,
    "IQ4_XS": llama_cpp.LLAMA_FTYPE_MOSTLY_IQ4_XS,
}
# Numbers of sequences, and of each one's tokens in batch after batch: one row alone, kernels of its
# own; 34 rows, a full tile and two of the next; two rows, one of each sequence.
BATCHES = ((1, [1]), (2, [17, 1]))
_N_BATCH = 34


def write_converted(model: Path, file_type: int, out: Path) -> None:
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype = file_type
    parameters.allow_requantize = parameters.pure = True
    # Half of a small model's numbers, and converting is what takes the time.
    parameters.token_embedding_type = parameters.output_tensor_type = llama_cpp.GGML_TYPE_Q8_0
    parameters.nthread = 1
    names = str(model).encode(), str(out).encode()
    assert llama_cpp.llama_model_quantize(*names, ctypes.byref(parameters)) == 0


def decoded(
    context: object, n_vocab: int, n_sequences: int, sizes: list[int]
) -> list[NDArray[np.float64]]:
    """(sizes[i], n_vocab) logits, of each sequence in batches with so many tokens of each."""
    random = np.random.default_rng(1)
    batch = llama_cpp.llama_batch_init(_N_BATCH, 0, 1)
    logits = []
    position = 0
    for size in sizes:
        batch.n_tokens = size * n_sequences
        for i in range(batch.n_tokens):
            batch.token[i], batch.logits[i] = int(random.integers(300, 4000)), 1
            batch.pos[i] = position + i % size
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, i // size
        assert llama_cpp.llama_decode(context, batch) == 0
        for begin in range(0, batch.n_tokens, size):
            row = llama_cpp.llama_get_logits_ith(context, begin)
            logits.append(np.ctypeslib.as_array(row, (size, n_vocab)).astype(np.float64))
        position += size
    llama_cpp.llama_batch_free(batch)
    return logits


def logits_of(path: Path, rearranged: bool) -> list[NDArray[np.float64]]:
    """(tokens, n_vocab) logits of each sequence in each batch of BATCHES."""
    parameters = llama_cpp.llama_model_default_params()
    parameters.use_extra_bufts = rearranged
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
    n_vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    settings = llama_cpp.llama_context_default_params()
    settings.n_ctx = settings.n_batch = settings.n_ubatch = settings.n_outputs_max = _N_BATCH
    settings.n_ctx *= 2
    settings.n_seq_max = 2
    settings.n_threads = settings.n_threads_batch = 1
    context = llama_cpp.llama_init_from_model(model, settings)
    logits = []
    for n_sequences, sizes in BATCHES:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
        logits += decoded(context, n_vocab, n_sequences, sizes)
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return logits


def median_difference(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    return float(np.median(np.sqrt(((one - other) ** 2).mean(axis=1))) / other.std())


def main() -> None:
    """Convert, compute, compare, write."""
    model = Path(sys.argv[1])
    llama_cpp.llama_backend_init()
    apart = {}
    for name, file_type in FILE_TYPES.items():
        converted = model.with_suffix(f".{name}.gguf")
        write_converted(model, file_type, converted)
        plain = logits_of(converted, rearranged=False)
        rearranged = logits_of(converted, rearranged=True)
        converted.unlink()
        apart[name] = max(map(median_difference, rearranged, plain))
    json.dump(apart, sys.stdout)


if __name__ == "__main__":
    main()
