"""Is the file what was trained? Tokens must be equal, logits nearly so; then samples to read."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from .bpe import Tokenizer
from .corpus import BOS, Corpus
from .llama_check import LlamaModel, Sampling
from .network import Network
from .story import tell_story

# Texts that no story holds: the tokenizers must agree on these too.
ODD_TEXTS = (
    "",
    " ",
    "  two  spaces \n\n\n and lines \t tabs ",
    "it's we'll you'd I'm they've he're 'sup ''s",
    "12345 67.89 1st ½ ² Ⅷ",
    "日本語のテキスト、と。 Привет, мир! שלום العربية हिन्दी",
    "👩‍🚀🏳️‍🌈 e\u0301 \u00a0\u2003 ﬁ ǅ",
    "def f(x):\n    return x**2 # ok\n",
    "<|user|> is text here, <|end|> too",
)


@dataclass(frozen=True, slots=True)
class Agreement:
    """How close the quantised file is to the network it came from."""

    n_positions: int
    same_best: float
    mean_difference: float
    max_difference: float


def check_tokens(model: LlamaModel, tokenizer: Tokenizer, n_texts: int = 1000) -> int:
    """Compare the tokens of `n_texts` stories and of the odd texts. Raises: ValueError."""
    rng = random.Random(20_000)
    texts = [*ODD_TEXTS, *(tell_story(rng).text for _ in range(n_texts))]
    for text in texts:
        theirs = model.tokenize(text, add_special=True, parse_special=False)
        ours = [tokenizer.control_id(BOS), *tokenizer.encode(text)]
        if ours != theirs:
            raise ValueError(f"llama.cpp cuts {text!r} into {theirs}, training into {ours}")
        if model.text(theirs) != text:
            raise ValueError(f"{text!r} is not what its tokens spell")
    return len(texts)


def check_logits(
    model: LlamaModel, network: Network, tokenizer: Tokenizer, n_documents: int = 20
) -> Agreement:
    """Compare logits at every position of fresh documents (llama.cpp's Q8_0, ours float32)."""
    rng, corpus = random.Random(30_000), Corpus(tokenizer)
    same, differences = [], []
    for _ in range(n_documents):
        tokens = corpus.draw(rng).tokens[: network.shape.n_ctx]
        theirs = model.logits(tokens)
        with torch.no_grad():
            ours = network(torch.tensor([tokens]))[0].numpy()
        same.append(theirs.argmax(axis=1) == ours.argmax(axis=1))
        differences.append(np.abs(theirs - ours).max(axis=1))
    best, difference = np.concatenate(same), np.concatenate(differences)
    return Agreement(
        len(best), float(best.mean()), float(difference.mean()), float(difference.max())
    )


def write_samples(path: Path, model: LlamaModel, prompts: list[str], n_samples: int) -> None:
    """Samples as Markdown, seeds 1 to `n_samples`, the prompts in turn."""
    lines = []
    for seed in range(1, n_samples + 1):
        prompt = prompts[(seed - 1) % len(prompts)]
        tokens = model.tokenize(prompt, add_special=True, parse_special=True)
        answer, ended = model.generate(tokens, seed, Sampling(), 400)
        note = f"{len(answer)} tokens" if ended else f"{len(answer)} tokens, not ended"
        shown = f"`{prompt}`" if prompt else "empty"
        text = model.text(answer).replace("\n\n", "\n>\n> ")
        lines += [f"**Seed {seed}**, prompt {shown}, {note}", "", f"> {text}", ""]
    path.write_text("\n".join(lines), encoding="utf-8")
