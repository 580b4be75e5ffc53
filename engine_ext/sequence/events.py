"""What an event of the engine says. Numbers mirror csrc/request/records.h."""

from enum import IntEnum


class EventKind(IntEnum):
    """What a `TokenEvent` says."""

    STARTED = 0
    """The request has its slot; `n_prompt`, `n_cached`, `n_idle_saved`, `updated_cache`, `copy_us`,
    `n_kept_copied`, `n_kept_computed` are known.

    `n_idle_saved`: idle slots whose state went to host memory; `updated_cache`: this slot's did, or
    was looked for there; `copy_us`: microseconds for which it has waited in the slot until states
    were copied. Of the prompt's tokens that host memory had, `n_kept_copied` came from there, and
    `n_kept_computed` are computed, since that is quicker.
    """
    PREFILL = 1
    """A prefill chunk is done: `n_processed` of `n_prompt` tokens are in the KV."""
    TOKEN = 2
    """One decoded token: `token`, `n_decoded`, and where asked for `logprob`, `top_logprobs`.

    `n_cells`: tokens in the slot's KV, this one not among them; `n_shifts`: context shifts so far.
    """
    LOGPROBS = 3
    """Internal: folded into the event that follows."""
    PROMPT_LOGPROB = 4
    """Logprob of prompt token number `n_decoded`, given the tokens before it."""
    FINISHED = 5
    """Last event of a request: `finish_reason`, `n_decoded`, `n_cells`, `status`, `n_shifts`,
    `cut_line`: of the text's lines, counted from 0, the one that is cut off after its indentation;
    -1: none is; `cells_us`: microseconds for which it has waited for cells that others held.

    It is also the only event of a slot action.
    """


class FinishReason(IntEnum):
    """Why a request ended."""

    NONE = 0
    EOS = 1
    TOKEN_LIMIT = 2
    CONTEXT_LIMIT = 3
    CANCELLED = 4
    NON_FINITE = 5
    """The logits held NaN, or no token was left to choose: an error."""
    DECODE_FAILED = 6
    """llama_decode returned `status`: an error."""
    EXCEPTION = 7
    """A C++ exception ended the step: an error; `Engine.error` has its text."""
    STOPPED = 8
    """The engine was stopped."""
    STOP_STRING = 9
    """The text holds a stop string; the last token completed it."""
    GRAMMAR_END = 10
    """The grammar is complete, and the request bans the tokens that end the text."""
    GRAMMAR_DEAD_END = 11
    """The request bans every token that its grammar allows: an error."""
    GRAMMAR_FAILED = 12
    """The grammar is too complex to go on, or gave no answer in time: an error; `TokenMask.failure`
    says more."""
    INDENT_LIMIT = 13
    """A line is indented less than `Request.n_indent`: it and what follows is cut off."""
    TIME_LIMIT = 14
    """A new line came later than `Request.t_max_ms` after the first token."""
