"""The native module's form of an engine's configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from engine_ext.base.native import load_native
from engine_ext.loading.config import EngineConfig
from engine_ext.loading.placement import Placement

if TYPE_CHECKING:
    from engine_ext import _native
else:
    _native = load_native()

DECODE_LOOPS: Final = {"auto": -1, "host": 0, "ahead": 1, "device": 2}
"""The native numbers of the decode loops."""
_GGML_TYPES: Final = {
    name: number
    for number, name in ((n, _native.ggml_type_name(n)) for n in range(32))
    if name is not None
}
_STEP_KERNELS: Final = {"ggml": 0, "own": 1, "auto": 2}
# What it may take beside `stop_timeout_s` to tell the clients and end the process.
_TELLING_S: Final = 10.0
_FLASH_ATTN: Final = {"auto": -1, "off": 0, "on": 1}


def native_config(config: EngineConfig, placement: Placement | None = None) -> _native.EngineConfig:
    """The native module's form of a configuration; without a placement no thread is placed."""
    native = _native.EngineConfig()
    native.model_path = str(config.model_path)
    options = _native.ModelOptions()
    for name, value in config.options.to_native().items():
        setattr(options, name, value)
    native.options = options
    for name in (
        "n_ctx",
        "fit",
        "fit_margins",
        "fit_n_ctx_min",
        "fit_host_bytes",
        "n_batch",
        "n_ubatch",
        "prefill_budget",
        "n_slots",
        "kv_unified",
        "deterministic",
        "context_shift",
        "slot_similarity",
        "cache_bytes_max",
        "cache_idle_slots",
        "n_waiting_max",
        "n_gpu_layers",
        "n_lanes",
        "require_device",
        "check_tensors",
        "warmup",
        "poll",
        "wake_interval_us",
    ):
        setattr(native, name, getattr(config, name))
    native.max_itl_us = round(config.max_itl_ms * 1e3)
    native.stall_us = round(config.stall_timeout_s * 1e6)
    native.abort_grace_us = round((config.stop_timeout_s + _TELLING_S) * 1e6)
    native.decode_loop = DECODE_LOOPS[config.decode_loop]
    native.kernels = _STEP_KERNELS[config.kernels]
    native.kernel_choices = "" if config.kernel_choices is None else str(config.kernel_choices)
    native.flash_attn = _FLASH_ATTN[config.flash_attn]
    native.cache_type_k = _GGML_TYPES[config.cache_type_k]
    native.cache_type_v = _GGML_TYPES[config.cache_type_v]
    if placement is None:
        return native
    native.n_threads = placement.n_threads
    native.n_threads_batch = placement.n_threads_batch
    native.short_steps_alone = placement.short_steps_alone
    if placement.is_pinned:
        native.decode_cores = placement.decode_cores
    native.worker_cores = placement.worker_cores
    return native
