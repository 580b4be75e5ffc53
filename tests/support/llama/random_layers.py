"""The tensors of random models: matrices of one type, vectors, and layers of several kinds."""

import gguf
import numpy as np
from numpy.typing import NDArray

N_EMBD = 512
N_FF = 1024
N_HEAD = 8
N_HEAD_KV = 2
N_EXPERT = 32
SSM_STATE = 16
SSM_RANK = 32
LATENT_RANK = 128  # what multi-head latent attention keeps of keys and values
LATENT_HEAD = 64
LATENT_ROPE = 32  # numbers of a head that turn with positions, after LATENT_HEAD's


class Tensors:
    """Adds tensors to `writer`; names begin with `block`."""

    def __init__(self, writer: gguf.GGUFWriter) -> None:
        self._writer = writer
        self._rng = np.random.default_rng(3)
        self.block = ""

    def random(self, *shape: int) -> NDArray[np.float32]:
        numbers = self._rng.standard_normal(shape, dtype=np.float32)
        return numbers / np.float32(np.sqrt(shape[-1]))

    def matrix(self, name: str, *shape: int) -> None:
        """One matrix of Q8_0 or, with three numbers in `shape`, several.

        Several have the same rows, each of them in an order of its own: making a mixture's numbers
        would take most of its tests' time.
        """
        kind = gguf.GGMLQuantizationType.Q8_0
        blocks = gguf.quants.quantize(self.random(*shape[-2:]), kind)
        if len(shape) == 3:
            blocks = np.stack([np.roll(blocks, 7 * i, axis=0) for i in range(shape[0])])
        self.q8_0(name, blocks)

    def q8_0(self, name: str, blocks: NDArray[np.uint8]) -> None:
        kind = gguf.GGMLQuantizationType.Q8_0
        self._writer.add_tensor(self.block + name, blocks, raw_dtype=kind)

    def vector(self, name: str, n: int) -> None:
        noise = self._rng.standard_normal(n, dtype=np.float32)
        self.f32(name, np.float32(1) + noise / np.float32(8))

    def f32(self, name: str, values: NDArray[np.float32]) -> None:
        self._writer.add_tensor(self.block + name, values)


def add_attention(tensors: Tensors, architecture: str, head_dim: int) -> None:
    if architecture == "phi3":
        tensors.matrix("attn_qkv.weight", (N_HEAD + 2 * N_HEAD_KV) * head_dim, N_EMBD)
    else:
        tensors.matrix("attn_q.weight", N_HEAD * head_dim, N_EMBD)
        tensors.matrix("attn_k.weight", N_HEAD_KV * head_dim, N_EMBD)
        tensors.matrix("attn_v.weight", N_HEAD_KV * head_dim, N_EMBD)
    tensors.matrix("attn_output.weight", N_EMBD, N_HEAD * head_dim)
    if architecture == "gpt-oss":
        tensors.vector("attn_output.bias", N_EMBD)
        tensors.vector("attn_sinks.weight", N_HEAD)
    if architecture in ("qwen2", "gpt-oss"):
        tensors.vector("attn_q.bias", N_HEAD * head_dim)
        tensors.vector("attn_k.bias", N_HEAD_KV * head_dim)
        tensors.vector("attn_v.bias", N_HEAD_KV * head_dim)
    if architecture in ("qwen3", "qwen3moe", "gemma3", "lfm2"):
        tensors.vector("attn_q_norm.weight", head_dim)
        tensors.vector("attn_k_norm.weight", head_dim)


def add_latent_attention(tensors: Tensors) -> None:
    """DeepSeek's: two of its weights have three dimensions."""
    tensors.matrix("attn_q.weight", N_HEAD * (LATENT_HEAD + LATENT_ROPE), N_EMBD)
    tensors.matrix("attn_kv_a_mqa.weight", LATENT_RANK + LATENT_ROPE, N_EMBD)
    tensors.vector("attn_kv_a_norm.weight", LATENT_RANK)
    tensors.matrix("attn_k_b.weight", N_HEAD, LATENT_RANK, LATENT_HEAD)
    tensors.matrix("attn_v_b.weight", N_HEAD, LATENT_HEAD, LATENT_RANK)
    tensors.matrix("attn_output.weight", N_EMBD, N_HEAD * LATENT_HEAD)


def add_mamba(tensors: Tensors) -> None:
    n_inner = 2 * N_EMBD
    tensors.matrix("ssm_in.weight", 2 * n_inner, N_EMBD)
    tensors.f32("ssm_conv1d.weight", np.full((n_inner, 4), 0.25, dtype=np.float32))
    tensors.vector("ssm_conv1d.bias", n_inner)
    tensors.matrix("ssm_x.weight", SSM_RANK + 2 * SSM_STATE, n_inner)
    tensors.matrix("ssm_dt.weight", n_inner, SSM_RANK)
    tensors.vector("ssm_dt.bias", n_inner)
    decay = -np.arange(1, SSM_STATE + 1, dtype=np.float32)
    tensors.f32("ssm_a", np.tile(decay, (n_inner, 1)))
    tensors.vector("ssm_d", n_inner)
    tensors.matrix("ssm_out.weight", N_EMBD, n_inner)


def add_short_convolution(tensors: Tensors) -> None:
    """LFM2's recurrent layer."""
    tensors.matrix("shortconv.in_proj.weight", 3 * N_EMBD, N_EMBD)
    tensors.f32("shortconv.conv.weight", np.full((N_EMBD, 3), 0.3, dtype=np.float32))
    tensors.matrix("shortconv.out_proj.weight", N_EMBD, N_EMBD)


def add_experts(tensors: Tensors, architecture: str) -> None:
    tensors.f32("ffn_gate_inp.weight", tensors.random(N_EXPERT, N_EMBD))
    if architecture == "gpt-oss":
        tensors.vector("ffn_gate_inp.bias", N_EXPERT)
        for name, n in (("gate", N_FF), ("up", N_FF), ("down", N_EMBD)):
            tensors.f32(f"ffn_{name}_exps.bias", tensors.random(N_EXPERT, n))
    tensors.matrix("ffn_gate_exps.weight", N_EXPERT, N_FF, N_EMBD)
    tensors.matrix("ffn_up_exps.weight", N_EXPERT, N_FF, N_EMBD)
    tensors.matrix("ffn_down_exps.weight", N_EXPERT, N_EMBD, N_FF)


def add_feed_forward(tensors: Tensors, architecture: str) -> None:
    if architecture == "phi3":
        tensors.matrix("ffn_up.weight", 2 * N_FF, N_EMBD)
    else:
        tensors.matrix("ffn_gate.weight", N_FF, N_EMBD)
        tensors.matrix("ffn_up.weight", N_FF, N_EMBD)
    tensors.matrix("ffn_down.weight", N_EMBD, N_FF)
