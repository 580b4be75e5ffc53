"""What steps were made of. Numbers mirror csrc/decode/counters.h."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStats:
    """Counters of steps since the start, and what is known of the costs of the host's."""

    n_batches: Sequence[int]
    """Batches that the host's loop computed, each one llama_decode, by their tokens: of one, of
    two, of up to 4, 8 and so on to 2048, and of more."""
    n_batch_tokens: int
    """Tokens of these batches together."""
    n_beside: int
    """Steps that computed prompt tokens beside slots that decode."""
    n_tokens_beside: int
    """Prompt tokens of these steps."""
    n_tokens_beside_max: int
    """The most of one of these steps."""
    prefill_budget: int
    """Prompt tokens that such a step may compute, by what is known now."""
    decode_us: int
    """What a step without prompt tokens is expected to take, with as many slots that decode as the
    last step had; 0: none has been seen."""
    prompt_token_ns: int
    """What one prompt token is expected to add to it; 0: none has been seen."""
    prompt_alone_ns: int
    """What a prompt token takes in the largest step of a prompt alone; 0: none has been seen."""
    n_observed: int
    """Steps that these two are learned from."""
    n_lane_steps: int
    """Steps that several requests made together in the GPU's loop."""
    n_lane_tokens: int
    """Tokens of these steps."""
    n_masked_tokens: int
    """Tokens that the GPU's loop drew under grammars by itself."""
    n_late_masks: int
    """Tokens under grammars of which it had to ask the host, since the mask was not there yet."""
    gap_us_max: int
    """The longest time between two tokens of a request."""
