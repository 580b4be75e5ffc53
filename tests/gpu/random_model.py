"""Small random-weight models of several architectures, written when a test asks for one.

The shapes are such that CUDA's flash attention serves them; the vocabulary is made up.
"""

from pathlib import Path

import gguf

from tests.support.llama.random_layers import (
    LATENT_HEAD,
    LATENT_RANK,
    LATENT_ROPE,
    N_EMBD,
    N_EXPERT,
    N_FF,
    N_HEAD,
    N_HEAD_KV,
    SSM_RANK,
    SSM_STATE,
    Tensors,
    add_attention,
    add_experts,
    add_feed_forward,
    add_latent_attention,
    add_mamba,
    add_short_convolution,
)

N_LAYER = 3
N_EXPERT_USED = 2
N_VOCAB = 4096
N_CTX = 32768
_ATTENTION_LAYER = 1  # of lfm2, which has recurrent layers around it

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
# Not of the GPU's tests: how their graphs are taken apart, and what the CPU backend computes of
# them, is tested on the CPU.
MORE_ARCHITECTURES = ("phi3", "gemma3", "gpt-oss", "lfm2", "deepseek2")
_WITH_EXPERTS = ("llama-moe", "qwen3moe", "gpt-oss")
_GEMMA_NORMS = ("gemma2", "gemma3")


def _add_latent_shape(writer: gguf.GGUFWriter) -> None:
    writer.add_leading_dense_block_count(N_LAYER)  # no experts
    writer.add_expert_feed_forward_length(N_FF)
    writer.add_expert_shared_count(1)
    writer.add_q_lora_rank(0)  # none
    writer.add_kv_lora_rank(LATENT_RANK)
    writer.add_key_length_mla(LATENT_HEAD + LATENT_ROPE)
    writer.add_value_length_mla(LATENT_HEAD)
    # What attention computes with: one latent head.
    writer.add_key_length(LATENT_RANK + LATENT_ROPE)
    writer.add_value_length(LATENT_RANK)
    writer.add_rope_dimension_count(LATENT_ROPE)


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
    if architecture == "deepseek2":
        writer.add_head_count_kv(1)
        _add_latent_shape(writer)
    else:
        layers = [N_HEAD_KV if i == _ATTENTION_LAYER else 0 for i in range(N_LAYER)]
        writer.add_head_count_kv(layers if architecture == "lfm2" else N_HEAD_KV)
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
        writer.add_ssm_state_size(SSM_STATE)
        writer.add_ssm_time_step_rank(SSM_RANK)
    if architecture == "lfm2":
        writer.add_shortconv_l_cache(3)
    if architecture in ("gemma2", "gemma3", "gpt-oss"):
        writer.add_sliding_window(256)
    if architecture == "gemma2":
        writer.add_attn_logit_softcapping(50.0)
        writer.add_final_logit_softcapping(30.0)


def _add_layer(tensors: Tensors, architecture: str, layer: int) -> None:
    tensors.block = f"blk.{layer}."
    tensors.vector("attn_norm.weight", N_EMBD)
    if architecture == "mamba":
        add_mamba(tensors)
        return
    if architecture != "gpt-oss":
        tensors.vector("ffn_norm.weight", N_EMBD)
    if architecture in (*_GEMMA_NORMS, "gpt-oss"):
        tensors.vector("post_attention_norm.weight", N_EMBD)
    if architecture in _GEMMA_NORMS:
        tensors.vector("post_ffw_norm.weight", N_EMBD)
    if architecture == "deepseek2":
        add_latent_attention(tensors)
    elif architecture == "lfm2" and layer != _ATTENTION_LAYER:
        add_short_convolution(tensors)
    else:
        add_attention(tensors, architecture, _head_dim(architecture))
    if architecture in _WITH_EXPERTS:
        add_experts(tensors, architecture)
    else:
        add_feed_forward(tensors, architecture)


def write_random_model(out: Path, architecture: str, nan_token: int = -1) -> None:
    """Write a model of one of ARCHITECTURES or MORE_ARCHITECTURES; the same seed every time.

    `nan_token`: this token's embedding is NaN, so that every logit after it is.
    """
    writer = gguf.GGUFWriter(out, "llama" if architecture == "llama-moe" else architecture)
    _add_vocabulary(writer)
    _add_shape(writer, architecture)
    tensors = Tensors(writer)
    q8_0 = gguf.GGMLQuantizationType.Q8_0
    embedding = gguf.quants.quantize(tensors.random(N_VOCAB, N_EMBD), q8_0)
    if nan_token >= 0:
        # A block is an F16 scale and 32 bytes.
        embedding[nan_token].reshape(-1, 34)[:, :2] = (0x00, 0x7E)
    tensors.q8_0("token_embd.weight", embedding)
    tensors.vector(
        "token_embd_norm.weight" if architecture == "lfm2" else "output_norm.weight", N_EMBD
    )
    if not architecture.startswith("gemma"):  # those share the embedding
        tensors.matrix("output.weight", N_VOCAB, N_EMBD)
    for layer in range(N_LAYER):
        _add_layer(tensors, architecture, layer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
