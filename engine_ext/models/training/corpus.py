"""The training data: documents of stories and chats as token ids with a weight for each target."""

from __future__ import annotations

import random
from dataclasses import dataclass

from . import words
from .bpe import Tokenizer, learn_merges
from .chat import Message, make_conversation
from .story import tell_story

BOS, EOS, END = "<|bos|>", "<|endoftext|>", "<|end|>"
ROLES = {"system": "<|system|>", "user": "<|user|>", "assistant": "<|assistant|>"}
CONTROL_TOKENS = (BOS, EOS, END, *ROLES.values())
N_VOCAB = 1536

# No <|bos|>: the tokenizer adds it. Roles that training does not know become one that it does.
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- set role = message['role'] -%}"
    "{%- if role == 'developer' -%}{%- set role = 'system' -%}"
    "{%- elif role not in ['system', 'user', 'assistant'] -%}{%- set role = 'user' -%}{%- endif -%}"
    "{{- '<|' + role + '|>' + (message['content'] | trim) + '<|end|>' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)

# Few of a story's tokens need the context further back: names, kinds, things, pronouns. They weigh
# more than the rest, and most of all where a story first takes up what the user asked for; or the
# model would be fluent long before it keeps to one name, and would never hear a request.
_AGREEING, _ASKED_FOR = 4.0, 16.0


@dataclass(frozen=True, slots=True)
class Document:
    """Token ids; `weights[i]` says how much predicting `tokens[i]` counts (0: not at all)."""

    tokens: list[int]
    weights: list[float]


def train_tokenizer(seed: int, n_stories: int = 4000) -> Tokenizer:
    """Learn the vocabulary on stories, and on chats for a quarter of them."""
    rng = random.Random(seed)
    texts = [tell_story(rng).text for _ in range(n_stories)]
    texts += [text for _ in range(n_stories // 4) for _, text in make_conversation(rng)]
    n_merges = N_VOCAB - 256 - len(CONTROL_TOKENS)
    return Tokenizer(CONTROL_TOKENS, learn_merges(texts, n_merges))


class Corpus:
    """An endless supply of documents for one tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._agreeing = agreeing_tokens(tokenizer)
        self._bos, self._eos = tokenizer.control_id(BOS), tokenizer.control_id(EOS)

    def draw(self, rng: random.Random) -> Document:
        """A conversation or a story: mostly whole, sometimes from its middle, rarely several."""
        kind = rng.random()
        if kind < 0.46:
            return self._chat(make_conversation(rng))
        text = tell_story(rng).text
        if kind < 0.49:  # whatever a prompt begins with, the model has seen stranger beginnings
            text = text[rng.choice([i for i, c in enumerate(text) if c == " "]) + 1 :]
        elif (
            kind < 0.50
        ):  # so that a server told to ignore EOS has something sensible to go on with
            text += "".join("\n\n" + tell_story(rng).text for _ in range(rng.choice((1, 1, 3))))
        tokens = [self._bos, *self._tokenizer.encode(text), self._eos]
        return Document(tokens, self._weigh(tokens, frozenset()))

    def _chat(self, messages: list[Message]) -> Document:
        """Only answers count: a chat must not teach that a text may start with a question."""
        tokens, weights = [self._bos], [1.0]
        asked: frozenset[int] = frozenset()
        end = self._tokenizer.control_id(END)
        for role, text in messages:
            words_of_message = self._tokenizer.encode(text)
            part = [self._tokenizer.control_id(ROLES[role]), *words_of_message, end]
            tokens += part
            if role == "assistant":
                weights += [0.0, *self._weigh(part[1:], asked)]
            else:
                weights += [0.0] * len(part)
                asked = self._agreeing.intersection(words_of_message)
        return Document([*tokens, self._eos], [*weights, 1.0])

    def _weigh(self, tokens: list[int], asked: frozenset[int]) -> list[float]:
        open_requests = set(asked)
        weights = []
        for token in tokens:
            if token in open_requests:
                open_requests.remove(token)
                weights.append(_ASKED_FOR)
            else:
                weights.append(_AGREEING if token in self._agreeing else 1.0)
        return weights


def agreeing_tokens(tokenizer: Tokenizer) -> frozenset[int]:
    """Tokens of the words that must agree with what was said before."""
    phrases = [*words.GIRL_NAMES, *words.BOY_NAMES, *words.ANIMALS, *words.RARE_HEROES]
    phrases += [*words.GIRLS, *words.BOYS, *words.WORKERS, *words.THINGS, *words.RARE_THINGS]
    phrases += [*words.FEARS, *words.GOALS, *words.FOODS, "she her", "he him his", "She He His Her"]
    tokens = set(tokenizer.encode(" " + " ".join(phrases)))
    common = set(tokenizer.encode(" the and but for you was were that"))
    return frozenset(t for t in tokens - common if len(tokenizer.pieces[t]) > 3)
