"""Whether there is memory for a very large context, before minutes are spent on asking for it."""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from engine_ext import EngineError
from unpaced.settings.host_memory import available_bytes

if TYPE_CHECKING:
    from engine_ext import EngineConfig, MemoryPlan

LARGE: Final = 1 << 20
"""Tokens of context; a smaller one that does not fit is refused by its allocation, at once."""
_SAMPLES: Final = (4096, 8192)
_CELL_BYTES: Final = 48
"""Of llama.cpp's books for each token, on the host (llama.cpp 0c1e57098 src/llama-kv-cells.h)."""
_GIB: Final = 1 << 30


def check_context(config: "EngineConfig") -> None:
    """Raises: EngineError naming what a large context takes, if there is not so much.

    Laying it out would itself take minutes and gigabytes, so two small ones are laid out, and what
    a token takes is their difference.
    """
    if config.n_ctx <= LARGE:
        return
    from engine_ext import list_devices, plan_memory

    small, larger = (plan_memory(replace(config, n_ctx=n)) for n in _SAMPLES)
    n_slots = max(1, round(small.n_ctx / _SAMPLES[0]))
    n_tokens = config.n_ctx * n_slots - small.n_ctx
    free = {True: available_bytes(), False: sum(each.free_bytes for each in list_devices())}
    for is_host, free_bytes in free.items():
        before, after = _bytes(small, is_host=is_host), _bytes(larger, is_host=is_host)
        token_bytes = (after - before) / (larger.n_ctx - small.n_ctx)
        needed = before + n_tokens * (token_bytes + (_CELL_BYTES if is_host else 0))
        if needed > free_bytes:
            where = "host memory" if is_host else "the devices' memory"
            raise EngineError(
                f"a context of {config.n_ctx} tokens takes {needed / _GIB:.1f} GiB of {where}, "
                f"and {free_bytes / _GIB:.1f} GiB are free (-c, --ctx-size)"
            )


def _bytes(plan: "MemoryPlan", *, is_host: bool) -> int:
    return sum(u.context_bytes + u.compute_bytes for u in plan.uses if u.is_host == is_host)
