"""Which model to load, and how."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

import engine_ext
from engine_ext import CacheType
from unpaced.settings.options.option import Option
from unpaced.settings.options.option_group import OptionGroup

DEMO_MODEL = Path(engine_ext.__file__).parent / "models" / "demo.gguf"
"""The model that comes with the package."""


class ModelSettings(OptionGroup):
    """Which model to load, and how. Counts are tokens unless they say otherwise."""

    group: ClassVar[str] = "Model and context"

    config: Annotated[
        Path | None,
        Option(
            ("--config",),
            "read settings from this TOML file: keys are the long flags, such as ctx-size = 4096",
            metavar="FILE",
        ),
    ] = None
    model: Annotated[
        Path,
        Option(
            ("-m", "--model"),
            "GGUF file; without it the built-in demo model",
            env="MODEL",
            metavar="FILE",
        ),
    ] = DEMO_MODEL
    alias: Annotated[
        str,
        Option(
            ("-a", "--alias"),
            "names of the model in the API, comma-separated (default: the path)",
            env="ALIAS",
            metavar="NAME",
        ),
    ] = ""
    tags: Annotated[
        str,
        Option(
            ("--tags",),
            "tags of the model in the API, comma-separated; for information",
            env="TAGS",
            metavar="TAGS",
        ),
    ] = ""
    ctx_size: Annotated[
        int,
        Field(ge=0),
        Option(
            ("-c", "--ctx-size"),
            "tokens of context, shared by the slots; 0: as trained (without -c: see --fit)",
            env="CTX_SIZE",
            metavar="N",
        ),
    ] = 0
    n_predict: Annotated[
        int,
        Field(ge=-1),
        Option(
            ("-n", "--predict", "--n-predict"),
            "tokens to generate where a request names no number; -1: until the end of the context",
            env="N_PREDICT",
            metavar="N",
        ),
    ] = -1
    batch_size: Annotated[
        int,
        Field(ge=1),
        Option(
            ("-b", "--batch-size"), "logical batch of the prompt, tokens", env="BATCH", metavar="N"
        ),
    ] = 2048
    ubatch_size: Annotated[
        int,
        Field(ge=1),
        Option(
            ("-ub", "--ubatch-size"),
            "tokens computed between two looks for a cancelled request",
            env="UBATCH",
            metavar="N",
        ),
    ] = 512
    flash_attn: Annotated[
        Literal["on", "off", "auto"],
        Option(
            ("-fa", "--flash-attn"),
            "flash attention: on, off or auto",
            env="FLASH_ATTN",
            metavar="MODE",
            bare="on",
        ),
    ] = "auto"
    cache_type_k: Annotated[
        CacheType,
        Option(
            ("-ctk", "--cache-type-k"),
            "type of the K cache: f32 f16 bf16 q8_0 q4_0 q4_1 iq4_nl q5_0 q5_1",
            env="CACHE_TYPE_K",
            metavar="TYPE",
        ),
    ] = "f16"
    cache_type_v: Annotated[
        CacheType,
        Option(
            ("-ctv", "--cache-type-v"), "type of the V cache", env="CACHE_TYPE_V", metavar="TYPE"
        ),
    ] = "f16"
    warmup: Annotated[
        bool, Option(("--warmup",), "run one empty step after loading", off_flags=("--no-warmup",))
    ] = True
