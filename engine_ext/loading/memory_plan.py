"""How much memory a model and its context will take, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_ext.base.errors import ModelLoadError
from engine_ext.base.native import load_native
from engine_ext.loading.config import EngineConfig
from engine_ext.loading.model_file import check_model_file
from engine_ext.loading.model_info import describe
from engine_ext.loading.native_config import native_config
from engine_ext.loading.rpc import use_rpc_workers

if TYPE_CHECKING:
    from engine_ext import _native
else:
    _native = load_native()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """One kind of memory; `device` describes a GPU, empty for the host's.

    `loop_bytes`: of the GPU's decode loop, beside what llama.cpp lays out.
    """

    buffer_type: str
    device: str
    is_host: bool
    model_bytes: int
    context_bytes: int
    compute_bytes: int
    loop_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return self.model_bytes + self.context_bytes + self.compute_bytes + self.loop_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """What llama.cpp lays out for a configuration. `n_ctx` is shared by the slots.

    `fit` says what was made smaller to fit the memory; empty: nothing. `choice` says which of
    several GPUs were chosen, and why; empty: there was nothing to choose.
    """

    uses: tuple[MemoryUse, ...]
    n_ctx: int
    n_ctx_slot: int
    n_ctx_train: int
    n_layer: int
    n_params: int
    description: str
    fit: str = ""
    choice: str = ""


def plan_memory(config: EngineConfig) -> MemoryPlan:
    """Read the model's metadata and have llama.cpp lay it out without allocating anything.

    Raises: ModelLoadError, one sentence naming the file.
    """
    check_model_file(config.model_path)
    use_rpc_workers(config.options.rpc_workers)
    try:
        plan = _native.plan_memory(native_config(config))
    except RuntimeError as error:
        raise ModelLoadError(str(error)) from None
    plan["description"] = describe(plan["description"], plan["n_params"])
    uses = tuple(MemoryUse(**use) for use in plan.pop("uses"))
    return MemoryPlan(uses=uses, **plan)
