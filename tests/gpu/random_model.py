"""Small random-weight models of several architectures, written when a test asks for one.

The shapes are such that CUDA's flash attention serves them; the vocabulary is made up.
"""

from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

N_LAYER = 3
N_EMBD = 512
N_FF = 1024
N_HEAD = 8
N_HEAD_KV = 2
N_EXPERT = 8
N_EXPERT_USED = 2
N_VOCAB = 4096
N_CTX = 32768
_SSM_STATE = 16
_SSM_RANK = 32

ARCHITECTURES = (
    "llama",
    "llama-moe",
    "mistral3",
    "qwen2",
    "qwen3",
    "qwen3moe",
    "gemma",
    "gemma2",
    "mamba",
)
# Not of the GPU's tests: how their graphs are taken apart is tested on the CPU.
MORE_ARCHITECTURES = ("phi3", "gemma3", "gpt-oss")
_WITH_EXPERTS = ("llama-moe", "qwen3moe", "gpt-oss")
_GEMMA_NORMS = ("gemma2", "gemma3")


def _head_dim(architecture: str) -> int:
    # With a capped softmax CUDA's flash attention has no smaller heads.
    return 128 if architecture == "gemma2" else 64


def _add_vocabulary(writer: gguf.GGUFWriter) -> None:
    tokens = [b"<unk>", b"<s>", b"</s>", *(b"<0x%02X>" % byte for byte in range(256))]
    kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
    kinds += [gguf.TokenType.BYTE] * 256
    tokens += [b"w%d" % i for i in range(N_VOCAB - len(tokens))]
    kinds += [gguf.TokenType.NORMAL] * (N_VOCAB - len(kinds))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([-float(i) for i in range(N_VOCAB)])
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)


def _add_shape(writer: gguf.GGUFWriter, architecture: str) -> None:
    # Of a model that is called phi3 llama.cpp expects that model's tokens.
    writer.add_name(f"random {architecture.removesuffix('3')}")
    writer.add_context_length(N_CTX)
    writer.add_embedding_length(N_EMBD)
    writer.add_block_count(N_LAYER)
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(N_HEAD)
    writer.add_head_count_kv(N_HEAD_KV)
    writer.add_key_length(_head_dim(architecture))
    writer.add_value_length(_head_dim(architecture))
    writer.add_rope_dimension_count(_head_dim(architecture))
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(N_VOCAB)
    if architecture in _WITH_EXPERTS:
        writer.add_expert_count(N_EXPERT)
        writer.add_expert_used_count(N_EXPERT_USED)
        writer.add_expert_feed_forward_length(N_FF)
    if architecture == "mamba":
        writer.add_ssm_conv_kernel(4)
        writer.add_ssm_inner_size(2 * N_EMBD)
        writer.add_ssm_state_size(_SSM_STATE)
        writer.add_ssm_time_step_rank(_SSM_RANK)
    if architecture in ("gemma2", "gemma3", "gpt-oss"):
        writer.add_sliding_window(256)
    if architecture == "gemma2":
        writer.add_attn_logit_softcapping(50.0)
        writer.add_final_logit_softcapping(30.0)


def _attention_tensors(
    add: Callable[..., None], vector: Callable[[str, int], None], block: str, architecture: str
) -> None:
    head_dim = _head_dim(architecture)
    if architecture == "phi3":
        add(block + "attn_qkv.weight", (N_HEAD + 2 * N_HEAD_KV) * head_dim, N_EMBD)
    else:
        add(block + "attn_q.weight", N_HEAD * head_dim, N_EMBD)
        add(block + "attn_k.weight", N_HEAD_KV * head_dim, N_EMBD)
        add(block + "attn_v.weight", N_HEAD_KV * head_dim, N_EMBD)
    add(block + "attn_output.weight", N_EMBD, N_HEAD * head_dim)
    if architecture == "gpt-oss":
        vector(block + "attn_output.bias", N_EMBD)
        vector(block + "attn_sinks.weight", N_HEAD)
    if architecture in ("qwen2", "gpt-oss"):
        vector(block + "attn_q.bias", N_HEAD * head_dim)
        vector(block + "attn_k.bias", N_HEAD_KV * head_dim)
        vector(block + "attn_v.bias", N_HEAD_KV * head_dim)
    if architecture in ("qwen3", "qwen3moe", "gemma3"):
        vector(block + "attn_q_norm.weight", head_dim)
        vector(block + "attn_k_norm.weight", head_dim)


def _add_mamba_layer(
    writer: gguf.GGUFWriter,
    add: Callable[..., None],
    vector: Callable[[str, int], None],
    block: str,
) -> None:
    n_inner = 2 * N_EMBD
    add(block + "ssm_in.weight", 2 * n_inner, N_EMBD)
    writer.add_tensor(block + "ssm_conv1d.weight", np.full((n_inner, 4), 0.25, dtype=np.float32))
    vector(block + "ssm_conv1d.bias", n_inner)
    add(block + "ssm_x.weight", _SSM_RANK + 2 * _SSM_STATE, n_inner)
    add(block + "ssm_dt.weight", n_inner, _SSM_RANK)
    vector(block + "ssm_dt.bias", n_inner)
    decay = -np.arange(1, _SSM_STATE + 1, dtype=np.float32)
    writer.add_tensor(block + "ssm_a", np.tile(decay, (n_inner, 1)))
    vector(block + "ssm_d", n_inner)
    add(block + "ssm_out.weight", N_EMBD, n_inner)


def write_random_model(out: Path, architecture: str, nan_token: int = -1) -> None:
    """Write a model of one of ARCHITECTURES or MORE_ARCHITECTURES; the same seed every time.

    `nan_token`: this token's embedding is NaN, so that every logit after it is.
    """
    rng = np.random.default_rng(3)
    q8_0 = gguf.GGMLQuantizationType.Q8_0
    writer = gguf.GGUFWriter(out, "llama" if architecture == "llama-moe" else architecture)
    _add_vocabulary(writer)
    _add_shape(writer, architecture)

    def random(*shape: int) -> NDArray[np.float32]:
        return rng.standard_normal(shape, dtype=np.float32) / np.float32(np.sqrt(shape[-1]))

    def add(name: str, *shape: int) -> None:
        writer.add_tensor(name, gguf.quants.quantize(random(*shape), q8_0), raw_dtype=q8_0)

    def vector(name: str, n: int) -> None:
        writer.add_tensor(name, 1.0 + rng.standard_normal(n, dtype=np.float32) / 8)

    embedding = gguf.quants.quantize(random(N_VOCAB, N_EMBD), q8_0)
    if nan_token >= 0:
        # A block is an F16 scale and 32 bytes.
        embedding[nan_token].reshape(-1, 34)[:, :2] = (0x00, 0x7E)
    writer.add_tensor("token_embd.weight", embedding, raw_dtype=q8_0)
    vector("output_norm.weight", N_EMBD)
    if not architecture.startswith("gemma"):  # those share the embedding
        add("output.weight", N_VOCAB, N_EMBD)
    for layer in range(N_LAYER):
        block = f"blk.{layer}."
        vector(block + "attn_norm.weight", N_EMBD)
        if architecture == "mamba":
            _add_mamba_layer(writer, add, vector, block)
            continue
        if architecture != "gpt-oss":
            vector(block + "ffn_norm.weight", N_EMBD)
        if architecture in (*_GEMMA_NORMS, "gpt-oss"):
            vector(block + "post_attention_norm.weight", N_EMBD)
        if architecture in _GEMMA_NORMS:
            vector(block + "post_ffw_norm.weight", N_EMBD)
        _attention_tensors(add, vector, block, architecture)
        if architecture in _WITH_EXPERTS:
            writer.add_tensor(block + "ffn_gate_inp.weight", random(N_EXPERT, N_EMBD))
            if architecture == "gpt-oss":
                vector(block + "ffn_gate_inp.bias", N_EXPERT)
                for name, n in (("gate", N_FF), ("up", N_FF), ("down", N_EMBD)):
                    writer.add_tensor(f"{block}ffn_{name}_exps.bias", random(N_EXPERT, n))
            add(block + "ffn_gate_exps.weight", N_EXPERT, N_FF, N_EMBD)
            add(block + "ffn_up_exps.weight", N_EXPERT, N_FF, N_EMBD)
            add(block + "ffn_down_exps.weight", N_EXPERT, N_EMBD, N_FF)
        elif architecture == "phi3":
            add(block + "ffn_up.weight", 2 * N_FF, N_EMBD)
            add(block + "ffn_down.weight", N_EMBD, N_FF)
        else:
            add(block + "ffn_gate.weight", N_FF, N_EMBD)
            add(block + "ffn_up.weight", N_FF, N_EMBD)
            add(block + "ffn_down.weight", N_EMBD, N_FF)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
