"""How the model's file is read, and what is changed in it or added to it."""

from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from engine_ext import LazyMode, LoadMode, RopeScaling
from unpaced.settings.options.option import Option
from unpaced.settings.options.option_group import OptionGroup
from unpaced.settings.options.pairs import split_list, split_pairs


class LoadSettings(OptionGroup):
    """How the model's file is read, and what is changed in it or added to it."""

    group: ClassVar[str] = "Loading"

    load_mode: Annotated[
        LoadMode,
        Option(
            ("-lm", "--load-mode"),
            "auto, none (read), mmap, mlock, mmap+mlock or dio (direct I/O)",
            env="LOAD_MODE",
            metavar="MODE",
        ),
    ] = "auto"
    mmap: Annotated[
        bool | None,
        Option(("--mmap",), "the same as --load-mode mmap", off_flags=("--no-mmap",)),
    ] = None
    mlock: Annotated[
        bool, Option(("--mlock",), "the same as --load-mode mmap+mlock, or mlock with --no-mmap")
    ] = False
    lazy_mode: Annotated[
        LazyMode,
        Option(
            ("-lzm", "--lazy-mode"),
            "read rows of very large tables when they are needed: on, auto (above 4 GiB) or off",
            env="LAZY_MODE",
            metavar="MODE",
        ),
    ] = "auto"
    check_tensors: Annotated[
        bool, Option(("--check-tensors",), "look for invalid values while loading")
    ] = False
    override_kv: Annotated[
        tuple[str, ...],
        Option(
            ("--override-kv",),
            "KEY=TYPE:VALUE,... in place of the file's metadata; TYPE is int, float, bool or str",
            metavar="LIST",
            many=True,
        ),
    ] = ()
    lora: Annotated[
        tuple[str, ...],
        Option(("--lora",), "LoRA adapters, comma-separated", metavar="FILES", many=True),
    ] = ()
    lora_scaled: Annotated[
        tuple[str, ...],
        Option(
            ("--lora-scaled",),
            "FILE:SCALE,...: LoRA adapters, each with its factor unless a request says another",
            metavar="LIST",
            many=True,
        ),
    ] = ()
    lora_init_without_apply: Annotated[
        bool,
        Option(
            ("--lora-init-without-apply",),
            "load LoRA adapters with the factor 0, for requests and POST /lora-adapters to set",
        ),
    ] = False
    rope_scaling: Annotated[
        RopeScaling | None,
        Option(
            ("--rope-scaling",),
            "stretch positions: none, linear or yarn (default: the model's)",
            env="ROPE_SCALING_TYPE",
            metavar="TYPE",
        ),
    ] = None
    rope_scale: Annotated[
        float,
        Field(ge=0),
        Option(
            ("--rope-scale",),
            "stretch the context by this factor; 0: the model's",
            env="ROPE_SCALE",
            metavar="X",
        ),
    ] = 0.0
    rope_freq_base: Annotated[
        float,
        Field(ge=0),
        Option(
            ("--rope-freq-base",),
            "base frequency of rotary positions; 0: the model's",
            env="ROPE_FREQ_BASE",
            metavar="X",
        ),
    ] = 0.0
    rope_freq_scale: Annotated[
        float,
        Field(ge=0),
        Option(
            ("--rope-freq-scale",),
            "1 / --rope-scale; 0: the model's",
            env="ROPE_FREQ_SCALE",
            metavar="X",
        ),
    ] = 0.0
    yarn_orig_ctx: Annotated[
        int,
        Field(ge=0),
        Option(
            ("--yarn-orig-ctx",),
            "YaRN: context the model was trained with; 0: the model's",
            env="YARN_ORIG_CTX",
            metavar="N",
        ),
    ] = 0
    yarn_ext_factor: Annotated[
        float,
        Option(
            ("--yarn-ext-factor",),
            "YaRN: mix of extrapolation; 0: interpolate only; below 0: the model's",
            env="YARN_EXT_FACTOR",
            metavar="X",
        ),
    ] = -1.0
    yarn_attn_factor: Annotated[
        float,
        Option(
            ("--yarn-attn-factor",),
            "YaRN: scale of attention; below 0: the model's",
            env="YARN_ATTN_FACTOR",
            metavar="X",
        ),
    ] = -1.0
    yarn_beta_slow: Annotated[
        float,
        Option(
            ("--yarn-beta-slow",),
            "YaRN: high correction dimension; below 0: the model's",
            env="YARN_BETA_SLOW",
            metavar="X",
        ),
    ] = -1.0
    yarn_beta_fast: Annotated[
        float,
        Option(
            ("--yarn-beta-fast",),
            "YaRN: low correction dimension; below 0: the model's",
            env="YARN_BETA_FAST",
            metavar="X",
        ),
    ] = -1.0

    @model_validator(mode="after")
    def _check_pairs(self) -> Self:
        if self.load_mode != "auto" and (self.mmap is not None or self.mlock):
            raise ValueError("load_mode: cannot be combined with --mmap, --no-mmap or --mlock")
        if self.rope_scale > 0 and self.rope_freq_scale > 0:
            raise ValueError("rope_scale: cannot be combined with --rope-freq-scale")
        return self

    @field_validator("lora_scaled")
    @classmethod
    def _check_scales(cls, entries: tuple[str, ...]) -> tuple[str, ...]:
        for _, scale in split_pairs(entries, ":", at_last=True):
            float(scale)
        return entries

    @property
    def load_mode_in_force(self) -> LoadMode:
        """`load_mode`, or what the older --mmap and --mlock mean."""
        if self.mmap is None and not self.mlock:
            return self.load_mode
        if self.mmap is False:
            return "mlock" if self.mlock else "none"
        return "mmap+mlock" if self.mlock else "mmap"

    @property
    def freq_scale(self) -> float:
        """llama.cpp's factor on the frequencies; 0: the model's."""
        return 1.0 / self.rope_scale if self.rope_scale > 0 else self.rope_freq_scale

    def loras(self) -> tuple[tuple[Path, float], ...]:
        """Adapter files and the factors they are applied with."""
        given = [(path, 1.0) for path in split_list(self.lora)]
        pairs = split_pairs(self.lora_scaled, ":", at_last=True)
        given += [(path, float(scale)) for path, scale in pairs]
        off = self.lora_init_without_apply
        return tuple((Path(path), 0.0 if off else scale) for path, scale in given)
