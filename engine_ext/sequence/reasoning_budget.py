"""When a sequence's reasoning must end, in tokens."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningBudget:
    """Reasoning begins after the tokens of `start` and ends with those of one of `ends`.

    After `n_tokens` of it (-1: never), or when `TokenStream.end_reasoning` asks for it, the
    tokens of `forced` come, which hold an end. A token that ends within a UTF-8 character is waited
    for. `prompt`: the tokens at the prompt's end that count as the answer's beginning.
    `suspends_grammar`: the grammar is not asked about reasoning, and is told the end alone.
    """

    start: tuple[int, ...]
    ends: tuple[tuple[int, ...], ...]
    forced: tuple[int, ...]
    n_tokens: int = -1
    prompt: tuple[int, ...] = ()
    suspends_grammar: bool = False

    def __post_init__(self) -> None:
        if not -1 <= self.n_tokens < 2**31:
            raise ValueError(f"n_tokens: must be >= -1, but got {self.n_tokens}")
        if not self.start or not self.ends or not all(self.ends) or not self.forced:
            raise ValueError("start, ends, forced: must not be empty")
