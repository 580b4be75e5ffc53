"""The demo model in PyTorch: the "llama" architecture as llama.cpp computes it.

RMSNorm before each block, rotary positions, grouped-query attention, SwiGLU, tied embeddings.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes; every row is a multiple of 32 long, as Q8_0 wants it."""

    n_vocab: int
    n_ctx: int = 1024
    n_embd: int = 256
    n_layer: int = 4
    n_head: int = 4
    n_head_kv: int = 2
    n_ff: int = 704
    rope_base: float = 100000.0
    norm_eps: float = 1e-5

    @property
    def n_rot(self) -> int:
        return self.n_embd // self.n_head


def rotary_table(shape: Shape, n_tokens: int) -> tuple[Tensor, Tensor]:
    """cos and sin of the rotation angles, each (n_tokens, n_rot / 2)."""
    half = shape.n_rot // 2
    frequency = shape.rope_base ** (-torch.arange(half, dtype=torch.float32) / half)
    angles = torch.outer(torch.arange(n_tokens, dtype=torch.float32), frequency)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the pairs (i, i + n_rot / 2) of x (..., n_tokens, n_rot); export.py reorders them."""
    first, second = x.float().chunk(2, dim=-1)
    turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    return turned.to(x.dtype)


class Block(nn.Module):
    """Attention and feed-forward, each added to what comes in."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        n_kv = shape.n_head_kv * shape.n_rot
        self.shape = shape
        self.attn_norm = nn.RMSNorm(shape.n_embd, eps=shape.norm_eps)
        self.attn_q = nn.Linear(shape.n_embd, shape.n_embd, bias=False)
        self.attn_k = nn.Linear(shape.n_embd, n_kv, bias=False)
        self.attn_v = nn.Linear(shape.n_embd, n_kv, bias=False)
        self.attn_output = nn.Linear(shape.n_embd, shape.n_embd, bias=False)
        self.ffn_norm = nn.RMSNorm(shape.n_embd, eps=shape.norm_eps)
        self.ffn_gate = nn.Linear(shape.n_embd, shape.n_ff, bias=False)
        self.ffn_up = nn.Linear(shape.n_embd, shape.n_ff, bias=False)
        self.ffn_down = nn.Linear(shape.n_ff, shape.n_embd, bias=False)

    def _heads(self, x: Tensor, n_head: int) -> Tensor:
        return x.view(x.shape[0], x.shape[1], n_head, self.shape.n_rot).transpose(1, 2)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x (n_batch, n_tokens, n_embd) -> the same shape."""
        shape = self.shape
        normed = self.attn_norm(x)
        q = rotate(self._heads(self.attn_q(normed), shape.n_head), cos, sin)
        k = rotate(self._heads(self.attn_k(normed), shape.n_head_kv), cos, sin)
        v = self._heads(self.attn_v(normed), shape.n_head_kv)
        group = shape.n_head // shape.n_head_kv
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_output(mixed.transpose(1, 2).reshape(x.shape))
        normed = self.ffn_norm(x)
        return x + self.ffn_down(functional.silu(self.ffn_gate(normed)) * self.ffn_up(normed))


class Network(nn.Module):
    """Token ids to logits."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.token_embd = nn.Embedding(shape.n_vocab, shape.n_embd)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.n_layer))
        self.output_norm = nn.RMSNorm(shape.n_embd, eps=shape.norm_eps)
        nn.init.normal_(self.token_embd.weight, std=0.02)
        for name, weight in self.named_parameters():
            if name.endswith(("attn_output.weight", "ffn_down.weight")):
                nn.init.normal_(weight, std=0.02 / (2 * shape.n_layer) ** 0.5)
            elif "blocks" in name and weight.ndim == 2:
                nn.init.normal_(weight, std=0.04)

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens (n_batch, n_tokens) -> logits (n_batch, n_tokens, n_vocab)."""
        cos, sin = rotary_table(self.shape, tokens.shape[1])
        x = self.token_embd(tokens)
        for block in self.blocks:
            x = block(x, cos, sin)
        return functional.linear(self.output_norm(x), self.token_embd.weight)
