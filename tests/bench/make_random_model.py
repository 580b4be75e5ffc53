#!/usr/bin/env python3
"""A random-weight model at a real shape with a real vocabulary, for speed figures.

Weights are random Q8_0 blocks scaled so that activations stay near 1; the text is nonsense, the
work per token is that of a trained model of the shape. The vocabulary (Llama 3, 128 256 tokens) is
read from the source distribution of llama-cpp-python.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

Q8_0 = gguf.GGMLQuantizationType.Q8_0
BLOCK = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A decoder's dimensions."""

    n_layer: int
    n_embd: int
    n_ff: int
    n_head: int
    n_head_kv: int
    head_dim: int


SHAPES = {
    "0.5B": Shape(n_layer=24, n_embd=896, n_ff=4864, n_head=14, n_head_kv=2, head_dim=64),
    "1B": Shape(n_layer=16, n_embd=2048, n_ff=8192, n_head=32, n_head_kv=8, head_dim=64),
    "8B": Shape(n_layer=32, n_embd=4096, n_ff=14336, n_head=32, n_head_kv=8, head_dim=128),
}


def random_rows(rng: np.random.Generator, n_rows: int, n_cols: int) -> NDArray[np.uint8]:
    """Q8_0 rows of uniform int8 with a scale that gives entries of variance 1 / n_cols."""
    scale = np.float16(1.0 / (74.0 * np.sqrt(n_cols)))
    blocks = rng.integers(0, 256, (n_rows * n_cols // BLOCK, 2 + BLOCK), dtype=np.uint8)
    blocks[:, :2] = np.frombuffer(scale.tobytes(), np.uint8)
    return blocks.reshape(n_rows, n_cols // BLOCK * (2 + BLOCK))


def copy_vocabulary(writer: gguf.GGUFWriter, vocabulary: Path) -> int:
    """Copy the tokenizer.* keys of a vocabulary file; returns the number of tokens."""
    reader = gguf.GGUFReader(vocabulary)
    for name, field in reader.fields.items():
        if not name.startswith("tokenizer."):
            continue
        if field.types[0] == gguf.GGUFValueType.ARRAY:
            writer.add_array(name, field.contents())
        else:
            writer.add_key_value(name, field.contents(), field.types[0])
    return len(reader.fields["tokenizer.ggml.tokens"].data)


def write_model(out: Path, shape: Shape, vocabulary: Path) -> None:
    """Write the model; the same seed every time."""
    rng = np.random.default_rng(1)
    writer = gguf.GGUFWriter(out, "llama")
    n_vocab = copy_vocabulary(writer, vocabulary)
    writer.add_name(f"random {shape.n_layer}x{shape.n_embd}")
    writer.add_context_length(32768)
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

    def matrix(name: str, n_rows: int, n_cols: int) -> None:
        writer.add_tensor(name + ".weight", random_rows(rng, n_rows, n_cols), raw_dtype=Q8_0)

    def norm(name: str) -> None:
        writer.add_tensor(name + ".weight", np.ones(shape.n_embd, np.float32))

    n_q, n_kv = shape.n_head * shape.head_dim, shape.n_head_kv * shape.head_dim
    matrix("token_embd", n_vocab, shape.n_embd)
    norm("output_norm")
    matrix("output", n_vocab, shape.n_embd)
    for layer in range(shape.n_layer):
        block = f"blk.{layer}."
        norm(block + "attn_norm")
        matrix(block + "attn_q", n_q, shape.n_embd)
        matrix(block + "attn_k", n_kv, shape.n_embd)
        matrix(block + "attn_v", n_kv, shape.n_embd)
        matrix(block + "attn_output", shape.n_embd, n_q)
        norm(block + "ffn_norm")
        matrix(block + "ffn_gate", shape.n_ff, shape.n_embd)
        matrix(block + "ffn_up", shape.n_ff, shape.n_embd)
        matrix(block + "ffn_down", shape.n_embd, shape.n_ff)
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
    arguments = parser.parse_args()
    write_model(arguments.out, SHAPES[arguments.shape], arguments.vocabulary)


if __name__ == "__main__":
    main()
