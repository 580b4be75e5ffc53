"""Where the model's layers and the token loop live."""

from typing import Annotated, ClassVar, Final, Literal

from pydantic import BeforeValidator, Field, field_validator

from engine_ext import SplitMode, StepKernels
from unpaced.settings.options.option import Option
from unpaced.settings.options.option_group import OptionGroup
from unpaced.settings.options.pairs import split_pairs

# Names of a mixture-of-experts layer's expert weights, and of a dense feed-forward layer's.
_EXPERTS: Final = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
_DENSE: Final = r"\.ffn_(up|down|gate)\."
_CPU: Final = "CPU"
_LAYERS: Final = {"auto": -1, "all": -2}
# Without --lanes: as many as there can be, but no more than there are slots.
_DEFAULT_LANES: Final = 32


def _layers(value: object) -> object:
    # llama-server's words and numbers for as many as fit, and for as many as there are.
    return _LAYERS.get(value.lower(), value) if isinstance(value, str) else value


class DeviceSettings(OptionGroup):
    """Where the model's layers and the token loop live."""

    group: ClassVar[str] = "GPU (builds with a CUDA profile)"

    gpu_layers: Annotated[
        int,
        BeforeValidator(_layers),
        Field(ge=-2),
        Option(
            ("-ngl", "--gpu-layers", "--n-gpu-layers"),
            "layers on the GPU; -1 or auto: as many as fit (--fit); -2 or all: all of them; 0: "
            "none, and a CUDA build needs no GPU",
            env="N_GPU_LAYERS",
            metavar="N",
        ),
    ] = -1
    decode_loop: Annotated[
        Literal["auto", "host", "ahead", "device"],
        Option(
            ("--decode-loop",),
            "who runs the token loop: device (the GPU), ahead (the GPU samples, the host "
            "launches), host, or auto: the best that is exact",
            metavar="LOOP",
        ),
    ] = "auto"
    kernels: Annotated[
        StepKernels,
        Option(
            ("--kernels",),
            "who computes a step of the GPU's loop: ggml's kernels; own: ours, wherever they leave "
            "ggml's bits; auto: of those the ones that are not slower on this GPU",
            metavar="KERNELS",
        ),
    ] = "auto"
    lanes: Annotated[
        int,
        Field(ge=1, le=32),
        Option(
            ("--lanes",),
            "requests that the GPU's loop decodes together, at most: 1 to 32, as far as there are "
            "slots; with more at once the host takes over until they are fewer",
            metavar="N",
        ),
    ] = _DEFAULT_LANES
    require_device: Annotated[
        bool,
        Option(
            ("--require-device",),
            "refuse to start where the GPU cannot run the token loop",
            off_flags=("--no-require-device",),
        ),
    ] = False
    device: Annotated[
        str,
        Option(
            ("-dev", "--device"),
            "devices to use, comma-separated; none: no GPU; --list-devices names them",
            env="DEVICE",
            metavar="NAMES",
        ),
    ] = ""
    override_tensor: Annotated[
        tuple[str, ...],
        Option(
            ("-ot", "--override-tensor"),
            "PATTERN=BUFFER,...: memory for tensors whose names match, such as exps=CPU",
            env="OVERRIDE_TENSOR",
            metavar="LIST",
            many=True,
        ),
    ] = ()
    cpu_moe: Annotated[
        bool,
        Option(("-cmoe", "--cpu-moe"), "keep all experts' weights in host memory", env="CPU_MOE"),
    ] = False
    n_cpu_moe: Annotated[
        int,
        Field(ge=0),
        Option(
            ("-ncmoe", "--n-cpu-moe"),
            "keep the experts' weights of the first N layers in host memory",
            env="N_CPU_MOE",
            metavar="N",
        ),
    ] = 0
    n_cpu_ffn: Annotated[
        int,
        Field(ge=0),
        Option(
            ("-ncffn", "--n-cpu-ffn"),
            "keep the feed-forward weights of the first N layers in host memory",
            env="N_CPU_FFN",
            metavar="N",
        ),
    ] = 0
    split_mode: Annotated[
        SplitMode,
        Option(
            ("-sm", "--split-mode"),
            "several GPUs: none, layer, row or tensor; auto: none, on the emptiest GPU, where the "
            "model fits there, else layer; layer where -dev, -ts or -mg is given",
            env="SPLIT_MODE",
            metavar="MODE",
        ),
    ] = "auto"
    tensor_split: Annotated[
        str,
        Option(
            ("-ts", "--tensor-split"),
            "each GPU's share of the model, such as 3,1",
            env="TENSOR_SPLIT",
            metavar="LIST",
        ),
    ] = ""
    main_gpu: Annotated[
        int,
        Field(ge=0),
        Option(
            ("-mg", "--main-gpu"),
            "the GPU that --split-mode none uses",
            env="MAIN_GPU",
            metavar="N",
        ),
    ] = 0
    rpc: Annotated[
        str,
        Option(
            ("--rpc",),
            "HOST:PORT of workers on other machines that take part of the model, in a network that "
            "nobody else reaches (unpaced rpc-worker); builds of the profiles cpu-rpc and cuda-rpc",
            env="RPC",
            metavar="LIST",
        ),
    ] = ""
    kv_offload: Annotated[
        bool,
        Option(
            ("-kvo", "--kv-offload"),
            "the KV cache lies on the GPU (on by default)",
            env="KV_OFFLOAD",
            off_flags=("-nkvo", "--no-kv-offload"),
        ),
    ] = True
    op_offload: Annotated[
        bool,
        Option(
            ("--op-offload",),
            "the GPU computes prompts on weights in host memory too (on by default)",
            off_flags=("--no-op-offload",),
        ),
    ] = True
    repack: Annotated[
        bool,
        Option(
            ("--repack",),
            "rearrange weights for the CPU (on by default)",
            env="REPACK",
            off_flags=("-nr", "--no-repack"),
        ),
    ] = True
    no_host: Annotated[
        bool,
        Option(
            ("--no-host",),
            "no pinned host memory, so that weights on the CPU can be rearranged",
            env="NO_HOST",
        ),
    ] = False

    @field_validator("tensor_split")
    @classmethod
    def _check_split(cls, text: str) -> str:
        for part in _parts(text):
            if float(part) < 0:
                raise ValueError("shares are not negative")
        return text

    @field_validator("rpc")
    @classmethod
    def _check_workers(cls, text: str) -> str:
        for worker in _names(text):
            host, _, port = worker.rpartition(":")
            if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
                raise ValueError(f"{worker!r} is not HOST:PORT")
        return text

    @field_validator("override_tensor")
    @classmethod
    def _check_overrides(cls, entries: tuple[str, ...]) -> tuple[str, ...]:
        split_pairs(entries, "=")
        return entries

    def tensor_overrides(self) -> tuple[tuple[str, str], ...]:
        """Patterns of tensors' names and the buffer types they go to; the first match wins."""
        pairs = list(split_pairs(self.override_tensor, "="))
        if self.cpu_moe:
            pairs.append((_EXPERTS, _CPU))
        pairs += [(rf"blk\.{i}{_EXPERTS}", _CPU) for i in range(self.n_cpu_moe)]
        pairs += [(rf"blk\.{i}{_DENSE}", _CPU) for i in range(self.n_cpu_ffn)]
        return tuple(pairs)

    def tensor_shares(self) -> tuple[float, ...]:
        """`tensor_split` as numbers."""
        return tuple(float(part) for part in _parts(self.tensor_split))

    @property
    def split_mode_in_force(self) -> SplitMode:
        """`split_mode`, which is llama.cpp's own where GPUs are chosen in another way."""
        named = self.device or self.tensor_split or self.rpc
        is_chosen = bool(named) or "main_gpu" in self.model_fields_set
        return "layer" if self.split_mode == "auto" and is_chosen else self.split_mode

    def notices(self) -> list[str]:
        """A line for each flag about GPUs that does nothing beside the others."""
        mode = self.split_mode_in_force
        lines = []
        if "main_gpu" in self.model_fields_set and mode != "none":
            lines.append(
                f"--main-gpu has no effect: --split-mode none uses it, and here it is {mode}"
            )
        if self.tensor_split and mode == "none":
            lines.append("--tensor-split has no effect: --split-mode none takes one GPU")
        return lines

    def device_names(self) -> tuple[str, ...]:
        """`device` as names."""
        return _names(self.device)

    def rpc_workers(self) -> tuple[str, ...]:
        """`rpc` as addresses, each once."""
        return tuple(dict.fromkeys(_names(self.rpc)))


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _parts(text: str) -> list[str]:
    return [part for part in text.replace("/", ",").split(",") if part.strip()]
