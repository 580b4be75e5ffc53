"""Write the trained network as a GGUF file that llama.cpp loads as a "llama" model."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import torch
from numpy.typing import NDArray

from .bpe import Tokenizer, byte_characters
from .corpus import BOS, CHAT_TEMPLATE, END, EOS
from .network import Network, Shape

NAME = "Unpaced demo stories"
DESCRIPTION = (
    "A tiny story teller for trying and testing a server: short English stories, plain or in a "
    "chat. Trained from scratch on sentences of a grammar."
)

Floats = NDArray[np.float32]


def write_gguf(path: Path, network: Network, tokenizer: Tokenizer, *, seed: int) -> None:
    """Matrices as Q8_0 (1.0625 bytes a weight), norms as F32, vocabulary and chat template."""
    writer = gguf.GGUFWriter(path, "llama")
    _add_description(writer, network, seed)
    _add_shape(writer, network.shape)
    _add_tokenizer(writer, tokenizer)
    for name, values in _tensors(network).items():
        if values.ndim == 1:
            writer.add_tensor(name, values)
            continue
        kind = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_description(writer: gguf.GGUFWriter, network: Network, seed: int) -> None:
    n_params = sum(weights.numel() for weights in network.parameters())
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_name(NAME)
    writer.add_author("Unpaced contributors")
    writer.add_version(f"1.0, seed {seed}")
    writer.add_description(DESCRIPTION)
    writer.add_license("MIT")
    writer.add_languages(["en"])
    writer.add_tags(["text-generation", "stories", "demo"])
    writer.add_size_label(f"{n_params / 1e6:.1f}M")
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)


def _add_shape(writer: gguf.GGUFWriter, shape: Shape) -> None:
    writer.add_vocab_size(shape.n_vocab)
    writer.add_context_length(shape.n_ctx)
    writer.add_embedding_length(shape.n_embd)
    writer.add_block_count(shape.n_layer)
    writer.add_feed_forward_length(shape.n_ff)
    writer.add_head_count(shape.n_head)
    writer.add_head_count_kv(shape.n_head_kv)
    writer.add_layer_norm_rms_eps(shape.norm_eps)
    writer.add_rope_dimension_count(shape.n_rot)
    writer.add_rope_freq_base(shape.rope_base)


def _add_tokenizer(writer: gguf.GGUFWriter, tokenizer: Tokenizer) -> None:
    characters = byte_characters()

    def written(piece: bytes) -> str:
        return "".join(characters[byte] for byte in piece)

    n_control = len(tokenizer.control)
    normal = [written(piece) for piece in tokenizer.pieces[n_control:]]
    kinds = [gguf.TokenType.CONTROL] * n_control + [gguf.TokenType.NORMAL] * len(normal)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([*tokenizer.control, *normal])
    writer.add_token_types(kinds)
    writer.add_token_merges(
        [f"{written(left)} {written(right)}" for left, right in tokenizer.merges]
    )
    writer.add_bos_token_id(tokenizer.control_id(BOS))
    writer.add_eos_token_id(tokenizer.control_id(EOS))
    writer.add_eot_token_id(tokenizer.control_id(END))
    writer.add_pad_token_id(tokenizer.control_id(EOS))
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def _tensors(network: Network) -> dict[str, Floats]:
    """llama.cpp's names and layouts; the output matrix is missing because it is the embedding."""
    shape = network.shape
    tensors: dict[str, Floats] = {}
    for name, weights in network.state_dict().items():
        values = weights.detach().to(torch.float32).numpy()
        if name.endswith(("attn_q.weight", "attn_k.weight")):
            values = _interleave(values, shape.n_rot)
        tensors[name.replace("blocks.", "blk.")] = np.ascontiguousarray(values)
    return tensors


def _interleave(values: Floats, n_rot: int) -> Floats:
    """Rows of Q or K from pairs (i, i + n_rot / 2), as network.py rotates them, to (2i, 2i + 1).

    llama.cpp rotates neighbours in "llama" models (LLAMA_ROPE_TYPE_NORM, src/llama-model.cpp at
    0c1e57098). The order within a head is free as long as Q and K share it.
    """
    n_embd = values.shape[1]
    heads = values.reshape(-1, 2, n_rot // 2, n_embd)
    return heads.swapaxes(1, 2).reshape(values.shape)
