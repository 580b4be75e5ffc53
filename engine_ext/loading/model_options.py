"""How a model is loaded beyond its file: placement, memory, position encoding, adapters."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

LoadMode = Literal["auto", "none", "mmap", "mlock", "mmap+mlock", "dio"]
LazyMode = Literal["off", "auto", "on"]
SplitMode = Literal["auto", "none", "layer", "row", "tensor"]
RopeScaling = Literal["none", "linear", "yarn"]
Numa = Literal["distribute", "isolate", "numactl"]

# llama.cpp's numbers (llama.h, ggml-cpu.h).
_LOAD_MODES: Final = {"auto": -1, "none": 0, "mmap": 1, "mlock": 2, "mmap+mlock": 3, "dio": 4}
_LAZY_MODES: Final = {"off": 0, "auto": 1, "on": 2}
_SPLIT_MODES: Final = {"auto": -1, "none": 0, "layer": 1, "row": 2, "tensor": 3}
_ROPE_SCALINGS: Final = {None: -1, "none": 0, "linear": 1, "yarn": 2}
_NUMA: Final = {None: 0, "distribute": 1, "isolate": 2, "numactl": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """How a model is loaded beyond its file; the defaults are the model's and llama.cpp's own.

    `kv_overrides`: "KEY=TYPE:VALUE" in place of the file's metadata, TYPE int, float, bool or str.
    `devices`: names of devices to use; none named: all; "none" alone: no GPU.
    `tensor_overrides`: pairs of a regular expression for names of tensors and the buffer type they
    go to; the first that matches wins. `split_mode`: "auto" puts a model that fits one GPU on the
    emptiest one, and splits it by layers else. `tensor_split`: each device's share of the layers.
    `repack`: weights may be rearranged for the CPU. `op_offload`: the GPU may compute on weights
    that lie in host memory. `rope_*` and `yarn_*`: 0, or below 0 for the factors: the model's.
    `loras`: adapter files with the factor of each. `numa`: llama.cpp's strategy. `priority`: of
    ggml's threads, -1 low to 3 real time. `poll_batch`: `poll` while prompts are
    computed; -1: the same. `rpc_workers`: see engine_ext.loading.rpc.
    """

    load_mode: LoadMode = "auto"
    lazy_mode: LazyMode = "auto"
    kv_overrides: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    tensor_overrides: tuple[tuple[str, str], ...] = ()
    split_mode: SplitMode = "auto"
    tensor_split: tuple[float, ...] = ()
    main_gpu: int = 0
    repack: bool = True
    no_host: bool = False
    op_offload: bool = True
    kv_offload: bool = True
    rope_scaling: RopeScaling | None = None
    rope_freq_base: float = 0.0
    rope_freq_scale: float = 0.0
    yarn_ext_factor: float = -1.0
    yarn_attn_factor: float = -1.0
    yarn_beta_fast: float = -1.0
    yarn_beta_slow: float = -1.0
    yarn_orig_ctx: int = 0
    loras: tuple[tuple[Path, float], ...] = ()
    numa: Numa | None = None
    priority: int = 0
    poll_batch: int = -1
    rpc_workers: tuple[str, ...] = ()

    def to_native(self) -> dict[str, object]:
        """Values of the native ModelOptions' fields."""
        values: dict[str, object] = {name: getattr(self, name) for name in self.__slots__}
        del values["rpc_workers"]  # devices of this process by now
        values["load_mode"] = _LOAD_MODES[self.load_mode]
        values["lazy_mode"] = _LAZY_MODES[self.lazy_mode]
        values["split_mode"] = _SPLIT_MODES[self.split_mode]
        values["rope_scaling"] = _ROPE_SCALINGS[self.rope_scaling]
        values["numa"] = _NUMA[self.numa]
        values["loras"] = [(str(path), scale) for path, scale in self.loras]
        for name in ("kv_overrides", "devices", "tensor_overrides", "tensor_split"):
            values[name] = list(getattr(self, name))
        return values
