"""The training loop: Muon for the matrices, AdamW for the rest, and averaged weights."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from .bpe import Tokenizer
from .corpus import Corpus, Document
from .network import Network, Shape


@dataclass(frozen=True, slots=True)
class Recipe:
    """How long and how fast; one step sees about `n_batch_tokens`."""

    n_steps: int
    n_batch_tokens: int = 3072
    n_pool: int = 512
    matrix_rate: float = 0.006
    other_rate: float = 0.006
    weight_decay: float = 0.01
    warmup: float = 0.03
    decay: float = 0.5
    average: float = 0.99
    seed: int = 1
    bfloat16: bool = True


def batches(recipe: Recipe, tokenizer: Tokenizer) -> Iterator[tuple[Tensor, Tensor]]:
    """(tokens, weights), both (n_documents, longest); nothing is seen twice.

    A row holds one document. Rows packed with several cost nothing for padding, but then names of
    other stories stand in the context, and the model takes ten times longer to learn to keep to
    those of its own.
    """
    rng, corpus = random.Random(recipe.seed), Corpus(tokenizer)
    while True:
        pool = [corpus.draw(rng) for _ in range(recipe.n_pool)]
        pool.sort(key=lambda document: len(document.tokens))
        groups, group = [], list[Document]()
        for document in pool:
            if group and (len(group) + 1) * len(document.tokens) > recipe.n_batch_tokens:
                groups.append(group)
                group = []
            group.append(document)
        groups.append(group)
        rng.shuffle(groups)
        yield from map(_padded, groups)


def _padded(group: list[Document]) -> tuple[Tensor, Tensor]:
    longest = max(len(document.tokens) for document in group)
    tokens = [document.tokens + [0] * (longest - len(document.tokens)) for document in group]
    weights = [document.weights + [0.0] * (longest - len(document.weights)) for document in group]
    return torch.tensor(tokens), torch.tensor(weights)


def rate_at(recipe: Recipe, step: int) -> float:
    """Share of the full learning rate: a short rise, level, then down to zero."""
    done = (step + 1) / recipe.n_steps
    return min(1.0, done / recipe.warmup, (1 - done) / recipe.decay + 1e-3)


def loss_of(network: Network, tokens: Tensor, weights: Tensor) -> Tensor:
    """Mean cross entropy of the next token, in nats, weighted by target."""
    logits = network(tokens[:, :-1]).float()
    targets, weight = tokens[:, 1:].flatten(), weights[:, 1:].flatten()
    each = functional.cross_entropy(logits.flatten(0, 1), targets, reduction="none")
    return (each * weight).sum() / weight.sum()


def optimizers(network: Network, recipe: Recipe) -> list[torch.optim.Optimizer]:
    matrices = [p for p in network.blocks.parameters() if p.ndim == 2]
    others = [p for p in network.parameters() if p.ndim < 2]
    embedding = network.token_embd.weight
    return [
        torch.optim.Muon(
            matrices,
            lr=recipe.matrix_rate,
            weight_decay=recipe.weight_decay,
            adjust_lr_fn="original",
        ),
        torch.optim.AdamW(
            [embedding, *others], lr=recipe.other_rate, betas=(0.9, 0.95), weight_decay=0.0
        ),
    ]


def fit(shape: Shape, recipe: Recipe, tokenizer: Tokenizer) -> tuple[Network, float]:
    """Train from scratch. Returns the network with averaged weights and its loss on fresh data."""
    torch.manual_seed(recipe.seed)
    network = Network(shape)
    average = torch.optim.swa_utils.AveragedModel(
        network, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(recipe.average)
    )
    steps = optimizers(network, recipe)
    full_rates = [[group["lr"] for group in step.param_groups] for step in steps]
    started, smooth, n_seen = time.monotonic(), math.log(shape.n_vocab), 0
    source = batches(recipe, tokenizer)
    for index in range(recipe.n_steps):
        tokens, weights = next(source)
        n_seen += int(weights.count_nonzero())
        with torch.autocast("cpu", torch.bfloat16, enabled=recipe.bfloat16):
            loss = loss_of(network, tokens, weights)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        for optimizer, rates in zip(steps, full_rates, strict=True):
            for group, full in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = full * rate_at(recipe, index)
            optimizer.step()
            optimizer.zero_grad()
        average.update_parameters(network)
        smooth += (loss.item() - smooth) * max(0.05, 1 / (index + 1))
        if index % 25 == 24 or index + 1 == recipe.n_steps:
            elapsed = time.monotonic() - started
            speed = n_seen / elapsed
            print(
                f"step {index + 1}/{recipe.n_steps}  loss {smooth:.4f}  "
                f"{speed:.0f} tokens/s  {elapsed:.0f} s",
                flush=True,
            )
    trained: Network = average.module
    return trained, measure(trained, recipe, tokenizer)


@torch.no_grad()
def measure(network: Network, recipe: Recipe, tokenizer: Tokenizer, n_batches: int = 25) -> float:
    """Unweighted loss, in float32, on documents that training never saw."""
    fresh = Recipe(n_steps=0, seed=recipe.seed + 1_000_000)
    source = batches(fresh, tokenizer)
    total = 0.0
    for _ in range(n_batches):
        tokens, weights = next(source)
        total += loss_of(network, tokens, (weights > 0).float()).item()
    return total / n_batches
