"""Every setting of the server, once: flag, environment variable and key of the config file.

The command line wins over the environment, that over the `--config` file, that over the default.
Flags and `LLAMA_ARG_*` names are llama-server's where it has the setting; nothing is accepted that
has no effect here.
"""

from typing import Any, Self

from pydantic import ConfigDict, PrivateAttr, model_validator

from engine_ext import EngineConfig, ModelOptions
from unpaced.settings.access import AccessSettings
from unpaced.settings.chat import ChatSettings
from unpaced.settings.device import DeviceSettings
from unpaced.settings.fit import FitSettings
from unpaced.settings.grammar import GrammarSettings
from unpaced.settings.http import HttpSettings
from unpaced.settings.kernel_choices import kernel_choices
from unpaced.settings.limits import LimitSettings
from unpaced.settings.loading import LoadSettings
from unpaced.settings.log import LogSettings
from unpaced.settings.metrics import MetricsSettings
from unpaced.settings.model import ModelSettings
from unpaced.settings.options.origin import name_origin
from unpaced.settings.options.pairs import split_list
from unpaced.settings.options.source import SourceSettings
from unpaced.settings.options.sources import read_environment, read_file
from unpaced.settings.page import PageSettings
from unpaced.settings.sampling import SamplingSettings
from unpaced.settings.slots import SlotSettings
from unpaced.settings.threads import ThreadSettings


class Settings(
    LogSettings,
    LimitSettings,
    AccessSettings,
    PageSettings,
    HttpSettings,
    MetricsSettings,
    ChatSettings,
    SamplingSettings,
    SlotSettings,
    GrammarSettings,
    ThreadSettings,
    FitSettings,
    DeviceSettings,
    LoadSettings,
    SourceSettings,
    ModelSettings,
):
    """All settings; frozen. The constructor's arguments are the command line."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, defer_build=False)

    _on_command_line: dict[str, Any] = PrivateAttr(default_factory=dict)

    def __init__(self, **command_line: Any) -> None:
        """Raises: pydantic's ValidationError; SettingsError for what is wrong in a source."""
        fields = type(self).model_fields
        values = read_environment(fields) | command_line
        path = values.get("config")
        super().__init__(**(values if path is None else read_file(path, fields) | values))
        self._on_command_line = command_line

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        self.sampling_defaults()
        _ = self.grammar_default
        self.engine_config()
        self.check_reuse()
        self.read_api_keys()
        return self

    def name_origin(self, message: str) -> str:
        """A message that begins with a field's name, with the flag, variable or key that set it."""
        return name_origin(message, type(self).model_fields, self._on_command_line)

    def model_options(self) -> ModelOptions:
        """How the model is loaded. Raises: ValueError beginning with a field's name."""
        return ModelOptions(
            load_mode=self.load_mode_in_force,
            lazy_mode=self.lazy_mode,
            kv_overrides=tuple(split_list(self.override_kv)),
            devices=self.device_names(),
            tensor_overrides=self.tensor_overrides(),
            split_mode=self.split_mode_in_force,
            tensor_split=self.tensor_shares(),
            main_gpu=self.main_gpu,
            repack=self.repack,
            no_host=self.no_host,
            op_offload=self.op_offload,
            kv_offload=self.kv_offload,
            rope_scaling=self.rope_scaling,
            rope_freq_base=self.rope_freq_base,
            rope_freq_scale=self.freq_scale,
            yarn_ext_factor=self.yarn_ext_factor,
            yarn_attn_factor=self.yarn_attn_factor,
            yarn_beta_fast=self.yarn_beta_fast,
            yarn_beta_slow=self.yarn_beta_slow,
            yarn_orig_ctx=self.yarn_orig_ctx,
            loras=self.loras(),
            numa=self.numa,
            priority=self.prio,
            poll_batch=self.poll_batch,
            rpc_workers=self.rpc_workers(),
        )

    def engine_config(self) -> EngineConfig:
        """What the engine needs of this. Raises: ValueError beginning with a field's name."""
        return EngineConfig(
            model_path=self.model,
            options=self.model_options(),
            n_ctx=self.ctx_size,
            fit=self.fit == "on",
            fit_margins=self.fit_margins,
            fit_n_ctx_min=self.fit_n_ctx_min,
            fit_host_bytes=self.fit_host_bytes,
            n_batch=self.batch_size,
            n_ubatch=min(self.ubatch_size, self.batch_size),
            prefill_budget=self.prefill_budget,
            max_itl_ms=self.max_itl_ms,
            n_slots=self.n_slots,
            kv_unified=self.shares_cells,
            deterministic=self.deterministic,
            context_shift=self.context_shift,
            slot_similarity=self.slot_prompt_similarity,
            cache_bytes_max=self.cache_bytes_max,
            cache_idle_slots=self.cache_idle_slots,
            n_threads=self.threads if self.threads > 0 else -1,
            n_threads_batch=self.threads_batch if self.threads_batch > 0 else -1,
            n_gpu_layers=self.gpu_layers,
            decode_loop=self.decode_loop,
            kernels=self.kernels,
            kernel_choices=kernel_choices() if self.kernels == "auto" else None,
            n_lanes=self.lanes,
            require_device=self.require_device,
            flash_attn=self.flash_attn,
            cache_type_k=self.cache_type_k,
            cache_type_v=self.cache_type_v,
            check_tensors=self.check_tensors,
            warmup=self.warmup,
            poll=self.poll,
            wake_interval_us=self.wake_interval_us,
            stall_timeout_s=self.stall_timeout,
            stop_timeout_s=self.stop_timeout,
            n_tokenizer_threads=self.tokenizer_threads,
            n_work_waiting_max=self.max_queue_requests,
            grammar_limit_s=self.grammar_timeout,
            grammar_wait_s=self.grammar_queue_timeout,
            pin=self.pin,
            decode_core=self.decode_core,
            strict_cpu=self.cpu_strict == 1,
        )
