#!/usr/bin/env python3
"""A random-weight model at a real shape with a real vocabulary, for speed figures.

Weights are random blocks scaled so that activations stay near 1; the text is nonsense, the work per
token is that of a trained model of the shape. Q4_K has Q6_K where llama-quantize's Q4_K_M has it.
The vocabulary (Llama 3, 128 256 tokens) is read from the source distribution of llama-cpp-python.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Quant
from numpy.typing import NDArray

from tests.support.llama.vocabulary_file import vocabulary_keys, write_keys

QUANTS = {"Q8_0": Quant.Q8_0, "Q4_K": Quant.Q4_K}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A decoder's dimensions."""

    n_layer: int
    n_embd: int
    n_ff: int
    n_head: int
    n_head_kv: int
    head_dim: int
    # Of a mixture of experts (qwen3moe): n_ff is one expert's then.
    n_expert: int = 0
    n_expert_used: int = 0


SHAPES = {
    # Quick to compute, and 64 KiB of KV a token, as an 8B model's half.
    "kv": Shape(n_layer=8, n_embd=256, n_ff=512, n_head=16, n_head_kv=16, head_dim=128),
    "0.1B": Shape(n_layer=12, n_embd=768, n_ff=2048, n_head=12, n_head_kv=4, head_dim=64),
    "0.5B": Shape(n_layer=24, n_embd=896, n_ff=4864, n_head=14, n_head_kv=2, head_dim=64),
    "1B": Shape(n_layer=16, n_embd=2048, n_ff=8192, n_head=32, n_head_kv=8, head_dim=64),
    "3B": Shape(n_layer=28, n_embd=3072, n_ff=8192, n_head=24, n_head_kv=8, head_dim=128),
    "8B": Shape(n_layer=32, n_embd=4096, n_ff=14336, n_head=32, n_head_kv=8, head_dim=128),
    # 30 billion weights, of which a token takes 3: 17 GiB as Q4_K.
    "30B-A3B": Shape(
        n_layer=48,
        n_embd=2048,
        n_ff=768,
        n_head=32,
        n_head_kv=4,
        head_dim=128,
        n_expert=128,
        n_expert_used=8,
    ),
}


def random_rows(
    rng: np.random.Generator, n_rows: int, n_cols: int, quant: Quant
) -> NDArray[np.uint8]:
    """Rows of random blocks whose scales give entries of variance about 1 / n_cols.

    Block layouts: ggml-common.h of llama.cpp 0c1e57098 (block_q8_0, block_q4_K, block_q6_K).
    """
    n_block, n_bytes = gguf.GGML_QUANT_SIZES[quant]
    if n_cols % n_block:
        raise ValueError(f"rows of {n_cols} are not made of {quant.name} blocks of {n_block}")
    blocks = rng.integers(0, 256, (n_rows * n_cols // n_block, n_bytes), dtype=np.uint8)
    sigma = 1.0 / np.sqrt(n_cols)
    if quant == Quant.Q8_0:
        blocks[:, :2] = half(sigma / 74.0)
    elif quant == Quant.Q4_K:
        # Six-bit scales of mean 32 on values 0 to 15, less minima of the same mean.
        blocks[:, :2] = half(sigma / 150.0)
        blocks[:, 2:4] = half(sigma / 150.0 * 7.5)
    else:
        blocks[:, -2:] = half(sigma / 1300.0)
    return blocks.reshape(n_rows, n_cols // n_block * n_bytes)


def half(value: float) -> NDArray[np.uint8]:
    """The two bytes of an F16."""
    return np.frombuffer(np.float16(value).tobytes(), np.uint8)


def write_model(out: Path, shape: Shape, quant: Quant, vocabulary: Path) -> None:
    """Write the model; the same seed every time."""
    rng = np.random.default_rng(1)
    writer = gguf.GGUFWriter(out, "qwen3moe" if shape.n_expert else "llama")
    n_vocab = write_keys(writer, vocabulary_keys(vocabulary))
    writer.add_name(f"random {shape.n_layer}x{shape.n_embd}")
    writer.add_context_length(131072)
    writer.add_embedding_length(shape.n_embd)
    writer.add_block_count(shape.n_layer)
    writer.add_feed_forward_length(shape.n_ff)
    writer.add_head_count(shape.n_head)
    writer.add_head_count_kv(shape.n_head_kv)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(500000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(n_vocab)
    if shape.n_expert:
        writer.add_expert_count(shape.n_expert)
        writer.add_expert_used_count(shape.n_expert_used)
        writer.add_expert_feed_forward_length(shape.n_ff)

    better = Quant.Q6_K if quant == Quant.Q4_K else quant

    def matrix(name: str, n_rows: int, n_cols: int, kind: Quant = quant) -> None:
        writer.add_tensor(name + ".weight", random_rows(rng, n_rows, n_cols, kind), raw_dtype=kind)

    def norm(name: str, n: int = shape.n_embd) -> None:
        writer.add_tensor(name + ".weight", np.ones(n, np.float32))

    def experts(name: str, n_rows: int, n_cols: int, kind: Quant = quant) -> None:
        rows = random_rows(rng, shape.n_expert * n_rows, n_cols, kind)
        writer.add_tensor(
            name + ".weight", rows.reshape(shape.n_expert, n_rows, -1), raw_dtype=kind
        )

    n_q, n_kv = shape.n_head * shape.head_dim, shape.n_head_kv * shape.head_dim
    matrix("token_embd", n_vocab, shape.n_embd)
    norm("output_norm")
    matrix("output", n_vocab, shape.n_embd, better)
    eighth, last = shape.n_layer // 8, 7 * shape.n_layer // 8
    for layer in range(shape.n_layer):
        block = f"blk.{layer}."
        # use_more_bits of llama-quant.cpp, llama.cpp 0c1e57098.
        more = layer < eighth or layer >= last or (layer - eighth) % 3 == 2
        mixed = better if more else quant
        norm(block + "attn_norm")
        matrix(block + "attn_q", n_q, shape.n_embd)
        matrix(block + "attn_k", n_kv, shape.n_embd)
        matrix(block + "attn_v", n_kv, shape.n_embd, mixed)
        matrix(block + "attn_output", shape.n_embd, n_q)
        norm(block + "ffn_norm")
        if shape.n_expert:
            norm(block + "attn_q_norm", shape.head_dim)
            norm(block + "attn_k_norm", shape.head_dim)
            router = rng.standard_normal((shape.n_expert, shape.n_embd), np.float32)
            router /= np.sqrt(np.float32(shape.n_embd))
            writer.add_tensor(block + "ffn_gate_inp.weight", router)
            experts(block + "ffn_gate_exps", shape.n_ff, shape.n_embd)
            experts(block + "ffn_up_exps", shape.n_ff, shape.n_embd)
            experts(block + "ffn_down_exps", shape.n_embd, shape.n_ff, mixed)
            continue
        matrix(block + "ffn_gate", shape.n_ff, shape.n_embd)
        matrix(block + "ffn_up", shape.n_ff, shape.n_embd)
        matrix(block + "ffn_down", shape.n_embd, shape.n_ff, mixed)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("vocabulary", type=Path, help="models/ggml-vocab-llama-bpe.gguf")
    parser.add_argument("out", type=Path)
    parser.add_argument("--quant", choices=QUANTS, default="Q8_0")
    arguments = parser.parse_args()
    shape, quant = SHAPES[arguments.shape], QUANTS[arguments.quant]
    write_model(arguments.out, shape, quant, arguments.vocabulary)


if __name__ == "__main__":
    main()
