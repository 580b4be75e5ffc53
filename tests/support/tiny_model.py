"""A random two-layer model with a real vocabulary: small, fast, and with text of its own kind."""

from pathlib import Path
from typing import Final

import gguf
import numpy as np
from numpy.typing import NDArray

from tests.support.llama.vocabulary_file import vocabulary_keys, write_keys

N_LAYER: Final = 2
N_EMBD: Final = 64
N_FF: Final = 128
N_HEAD: Final = 4
N_HEAD_KV: Final = 2
HEAD_DIM: Final = 16
FIM_TOKENS: Final = {"fim_pre": 29000, "fim_suf": 29001, "fim_mid": 29002}


THINK_TAGS: Final = ("<tool_call>", "</tool_call>", "<think>", "</think>")
_USER_DEFINED: Final = 4  # llama.cpp's type of a token that text is cut at


def write_tiny_model(
    out: Path, vocabulary: Path, *, scale: float = 3.0, fim: bool = False, tags: bool = False
) -> None:
    """Write the model; the same bytes every time.

    The logits' standard deviation is about `scale`: large enough that some tokens stand out.
    `fim` names three ordinary tokens as those of fill-in-the-middle prompts; `tags` makes the last
    tokens those of THINK_TAGS, as in the vocabularies of models that think.
    """
    writer = gguf.GGUFWriter(out, "llama")
    n_vocab = _copy_vocabulary(writer, vocabulary, THINK_TAGS if tags else ())
    if fim:
        for name, token in FIM_TOKENS.items():
            writer.add_uint32(f"tokenizer.ggml.{name}_token_id", token)
    finish_tiny_model(writer, n_vocab, scale)


def finish_tiny_model(writer: gguf.GGUFWriter, n_vocab: int, scale: float = 3.0) -> None:
    """Put in all but the vocabulary, and write the file."""
    writer.add_context_length(8192)
    writer.add_embedding_length(N_EMBD)
    writer.add_block_count(N_LAYER)
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(N_HEAD)
    writer.add_head_count_kv(N_HEAD_KV)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(n_vocab)
    _add_tensors(writer, n_vocab, scale)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _copy_vocabulary(writer: gguf.GGUFWriter, vocabulary: Path, last: tuple[str, ...]) -> int:
    keys = dict(vocabulary_keys(vocabulary))
    # A template of the vocabulary's would decide what chat requests look like.
    keys.pop("tokenizer.chat_template", None)
    if last:
        for name, values in (("tokens", last), ("token_type", [_USER_DEFINED] * len(last))):
            kind, before = keys[f"tokenizer.ggml.{name}"]
            keys[f"tokenizer.ggml.{name}"] = kind, [*before[: -len(last)], *values]
    return write_keys(writer, keys)


def _add_tensors(writer: gguf.GGUFWriter, n_vocab: int, scale: float) -> None:
    rng = np.random.default_rng(1)

    def matrix(name: str, n_rows: int, n_cols: int, factor: float = 1.0) -> None:
        rows = rng.standard_normal((n_rows, n_cols), dtype=np.float32)
        halves: NDArray[np.float16] = (rows * factor / np.sqrt(n_cols)).astype(np.float16)
        writer.add_tensor(f"{name}.weight", halves)

    def norm(name: str) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(N_EMBD, np.float32))

    matrix("token_embd", n_vocab, N_EMBD, scale)
    norm("output_norm")
    matrix("output", n_vocab, N_EMBD, scale)
    n_q, n_kv = N_HEAD * HEAD_DIM, N_HEAD_KV * HEAD_DIM
    for layer in range(N_LAYER):
        block = f"blk.{layer}."
        norm(block + "attn_norm")
        norm(block + "ffn_norm")
        matrix(block + "attn_q", n_q, N_EMBD)
        matrix(block + "attn_k", n_kv, N_EMBD)
        matrix(block + "attn_v", n_kv, N_EMBD)
        matrix(block + "attn_output", N_EMBD, n_q)
        matrix(block + "ffn_gate", N_FF, N_EMBD)
        matrix(block + "ffn_up", N_FF, N_EMBD)
        matrix(block + "ffn_down", N_EMBD, N_FF)
