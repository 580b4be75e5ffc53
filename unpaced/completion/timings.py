"""The `timings` object of a response, as llama-server computes it."""

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Timings:
    """When what happened to one sequence: steady-clock microseconds, 0 for "not yet".

    The first token counts as prompt time, since it comes from the prompt's logits; rates of
    decoding are over the steps after it.
    Source: llama.cpp 0c1e57098, tools/server/server-common.h (server_slot_stats).
    """

    start_us: int = 0
    prompt_us: int = 0
    """When the last piece of the prompt was done; in the end, the first token."""
    first_token_us: int = 0
    last_token_us: int = 0
    n_prompt: int = 0
    n_cached: int = 0
    n_processed: int = 0
    """Prompt tokens in the KV so far, cached ones included."""
    n_decoded: int = 0
    copy_us: int = 0
    """How long it waited in its slot for states to be copied, before `start_us`."""
    n_kept_copied: int = 0
    n_kept_computed: int = 0
    """Prompt tokens that host memory had: copied from there, or computed as that was quicker."""
    cells_us: int = 0
    """How long it waited for KV cells that others held, after `start_us`."""

    @property
    def prompt_ms(self) -> float:
        """From the slot's start to the first token, or to where the prompt is."""
        return (self.prompt_us - self.start_us) / 1e3 if self.prompt_us else 0.0

    @property
    def predicted_ms(self) -> float:
        """From the first token to the last, at least 1 us."""
        return max(1, self.last_token_us - self.first_token_us) / 1e3 if self.n_decoded else 0.0

    def to_json(self) -> dict[str, Any]:
        """Keys and order as llama-server's."""
        n_computed = self.n_processed - self.n_cached
        n_steps = max(0, self.n_decoded - 1)
        prompt_ms, predicted_ms = self.prompt_ms, self.predicted_ms
        return {
            "cache_n": self.n_cached,
            "prompt_n": n_computed,
            "prompt_ms": prompt_ms,
            "prompt_per_token_ms": prompt_ms / n_computed if n_computed else 0.0,
            "prompt_per_second": 1e3 / prompt_ms * n_computed if prompt_ms > 0 else 0.0,
            "predicted_n": self.n_decoded,
            "predicted_ms": predicted_ms,
            "predicted_per_token_ms": predicted_ms / n_steps if n_steps else 0.0,
            "predicted_per_second": 1e3 / predicted_ms * n_steps if predicted_ms > 0 else 0.0,
        }
