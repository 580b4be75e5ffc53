"""State and counters of an engine. Numbers mirror csrc/decode/decode_thread.h."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from engine_ext.engine.step_stats import StepStats


class EngineState(IntEnum):
    """Life of an engine, in order."""

    NEW = 0
    LOADING = 1
    READY = 2
    FAILED = 3
    STOPPED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """The decode thread's counters since it started, and its state now."""

    state: EngineState
    heartbeat_age_s: float
    """Seconds since the loop last moved; 0 while it sleeps for want of work."""
    steps: StepStats
    n_steps: int
    n_busy_slots: int
    """Sum over steps of the slots that were active."""
    n_tokens_decoded: int
    n_tokens_device: int
    """Decoded tokens that the GPU drew and fed to itself."""
    n_tokens_prompt: int
    """Prompt tokens computed; those reused from the KV are in n_tokens_cached."""
    n_tokens_cached: int
    n_prefix_waits: int
    """Requests that waited for another one to compute their common prefix."""
    n_tokens_shared: int
    """Of n_tokens_cached, those in cells that other sequences held as well."""
    n_cells_shared: int
    """Cells that several sequences hold now."""
    n_cells_repeated: int
    """What running slots' cells together are more than they are, each counted once."""
    n_requests_started: int
    n_requests_finished: int
    n_requests_cancelled: int
    n_requests_failed: int
    n_requests_host: Mapping[str, int]
    """Requests whose tokens the host drew, at least in part, although the loop is the GPU's; by
    reason, every reason listed."""
    n_prompts_graph: int
    """Prompts whose last tokens a captured CUDA graph computed."""
    n_prompt_graphs: int
    """CUDA graphs of short prompts, one a number of tokens and window of KV cells."""
    n_window_graphs: int
    """CUDA graphs in the cache, one a window of KV cells and number of lanes; host's loop: 0."""
    n_slots_active: int
    n_waiting: int
    n_cache_bytes: int
    n_cache_early_bytes: int
    """Slot states in host memory, and beside them copies of what idle slots still hold."""
    n_cache_states: int
    n_cache_lost: int
    """Of them, those whose cells were needed before they had been copied."""
    n_cache_copied: int
    """Requests to which such a state was copied."""
    n_cache_computed: int
    """Requests that were computed although there was such a state, since that was quicker."""
    n_cache_tried: int
    """Of these, those to which a part was copied, to see what that takes."""
    cache_cell_ns: int
    """What a cell takes in the largest part that is copied to a slot; 0: none was."""
    n_cell_waits: int
    """Times a request began to wait for KV cells that others held."""
    n_cells_yielded: int
    """Cells that requests gave to others while they ran, and computed anew later."""
    cache_turn_us_max: int
    """The longest time that copying and restoring slots took between two steps."""
    cache_us: int
    """What it took altogether."""
    n_ring_full: int
    """Times the decode thread had to wait for the reader of the token ring."""
    n_ring_most: int
    """The most events that ever waited in the token ring for its reader."""
    n_ring_max: int
    """Events that the token ring holds."""
    cpu_us: int
    """Processor time of the decode thread; its helpers' is not in it."""
    n_event_writes: int
    """Wake-ups of the front end."""
