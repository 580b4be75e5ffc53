"""One sequence to generate."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from engine_ext.sequence.grammar import Grammar
from engine_ext.sequence.reasoning_budget import ReasoningBudget
from engine_ext.sequence.sampling_params import SamplingParams

MAX_STOP_BYTES: Final = 65536


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceRequest:
    """One sequence to generate.

    `prompt`: token ids, at least one, fewer than the slot's context. `max_tokens`: -1 until EOS or
    the end of the context; 0 computes the prompt only. `n_probs`: this many best alternatives with
    every token, as natural logarithms of the plain softmax of the logits, or, with
    `post_sampling_probs`, as probabilities after the chain. `prompt_logprobs`: the same for every
    prompt token but the first. `cache_prompt`: reuse prefixes that sequences of the same
    `cache_domain` (64 bits) hold; `n_cache_reuse`: also chunks of at least so many tokens further
    on (0: none). `id_slot`: the slot to wait for, modulo their number; -1: any. `n_keep`,
    `n_discard`: tokens that a context shift keeps (-1: the prompt) and drops after them (0: half).

    `stop`: whole UTF-8 characters, at most MAX_STOP_BYTES together. The token after which the
    answer's bytes hold one of them is the last one, and is published. Control tokens have no text
    unless `special` is set or they are among `preserved_tokens`.

    `n_indent`: spaces and tabs that every line after the first must begin with, else the text ends
    before what follows them; 0: no limit. `t_max_ms`: the first line that ends so long after the
    first token is the last one, but a text of one line goes on; below 1: no limit. Both as
    llama-server has them, see csrc/request/text_limits.h.

    `lora_scales`: one for each adapter of `ModelOptions.loras`; None: theirs. Cells that others
    computed are not reused; slots with the same ones decode together.

    `grammar`: what the sequence must be; when it is complete only tokens that end the text may
    come. `reasoning_budget`: when its reasoning must end; None: whenever the model ends it.
    """

    prompt: Sequence[int]
    sampling: SamplingParams = field(default_factory=SamplingParams)
    max_tokens: int = -1
    n_probs: int = 0
    post_sampling_probs: bool = False
    prompt_logprobs: bool = False
    cache_prompt: bool = True
    cache_domain: int = 0
    stop: tuple[bytes, ...] = ()
    special: bool = False
    preserved_tokens: tuple[int, ...] = ()
    n_indent: int = 0
    t_max_ms: int = -1
    lora_scales: tuple[float, ...] | None = None
    n_cache_reuse: int = 0
    id_slot: int = -1
    n_keep: int = 0
    n_discard: int = 0
    grammar: Grammar | None = None
    reasoning_budget: ReasoningBudget | None = None

    def __post_init__(self) -> None:
        if not -1 <= self.max_tokens < 2**31:
            raise ValueError(f"max_tokens: must be >= -1, but got {self.max_tokens}")
        if not 0 <= self.n_probs < 2**31:
            raise ValueError(f"n_probs: must be >= 0, but got {self.n_probs}")
        if sum(map(len, self.stop)) > MAX_STOP_BYTES:
            raise ValueError(f"stop: must be at most {MAX_STOP_BYTES} bytes together")
        if not self.t_max_ms < 2**63:
            raise ValueError(f"t_max_ms: must be below 2^63, but got {self.t_max_ms}")
        for name, low in (
            ("n_cache_reuse", 0),
            ("id_slot", -1),
            ("n_keep", -1),
            ("n_discard", 0),
            ("n_indent", 0),
        ):
            if not low <= getattr(self, name) < 2**31:
                raise ValueError(f"{name}: must be >= {low}, but got {getattr(self, name)}")
