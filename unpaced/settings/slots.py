"""How many requests run at once, and what becomes of their KV cells."""

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field, field_validator

from unpaced.settings.host_memory import available_bytes
from unpaced.settings.options.option import Option
from unpaced.settings.options.option_group import OptionGroup

_AUTO_SLOTS = 4
_MIB = 1 << 20


class SlotSettings(OptionGroup):
    """How many requests run at once, and what becomes of their KV cells."""

    group: ClassVar[str] = "Slots and prompt cache"

    parallel: Annotated[
        int,
        Field(ge=-1, le=256),
        Option(
            ("-np", "--parallel"),
            "slots: requests that decode together; -1: 4 that share the context (--kv-unified)",
            env="N_PARALLEL",
            metavar="N",
        ),
    ] = -1
    kv_unified: Annotated[
        bool,
        Option(
            ("-kvu", "--kv-unified"),
            "one KV buffer for all slots: each may use the whole context; else each has its part, "
            "a multiple of 256 (on where the number of slots is auto)",
            env="KV_UNIFIED",
            off_flags=("-no-kvu", "--no-kv-unified"),
        ),
    ] = False
    cache_prompt: Annotated[
        bool,
        Option(
            ("--cache-prompt",),
            "reuse the prefix a slot still holds",
            env="CACHE_PROMPT",
            off_flags=("--no-cache-prompt",),
        ),
    ] = True
    cache_reuse: Annotated[
        int,
        Field(ge=0),
        Option(
            ("--cache-reuse",),
            "also reuse chunks of at least N tokens that moved, by shifting the KV; 0: never",
            env="CACHE_REUSE",
            metavar="N",
        ),
    ] = 0
    cache_ram: Annotated[
        int,
        Field(ge=-1),
        Option(
            ("-cram", "--cache-ram"),
            "MiB of host memory for prompts whose slot was taken over; at most half of what is "
            "free at start; -1: that half; 0: none",
            env="CACHE_RAM",
            metavar="N",
        ),
    ] = 8192
    cache_idle_slots: Annotated[
        bool,
        Option(
            ("--cache-idle-slots",),
            "move idle slots there when a request begins in another one; needs --cache-ram",
            env="CACHE_IDLE_SLOTS",
            off_flags=("--no-cache-idle-slots",),
        ),
    ] = True
    slot_prompt_similarity: Annotated[
        float,
        Field(ge=0.0, le=1.0),
        Option(
            ("-sps", "--slot-prompt-similarity"),
            "prefer a slot that holds more than this fraction of the prompt; 0: the longest unused",
            metavar="X",
        ),
    ] = 0.1
    deterministic: Annotated[
        bool,
        Option(
            ("--deterministic",),
            "a request's tokens are the same whatever else the server computes: every slot has its "
            "part of the context, prompts are computed one by one in chunks of --ubatch-size or "
            "--prefill-budget tokens, and reused by whole chunks",
            off_flags=("--no-deterministic",),
        ),
    ] = False
    prefill_budget: Annotated[
        int,
        Field(ge=-1),
        Option(
            ("--prefill-budget",),
            "prompt tokens that a step computes beside requests that decode, at most (with "
            "--deterministic: in every step); 0: as many as fit into --ubatch-size; -1: 128 where "
            "the CPU alone computes, without --max-itl-ms or --deterministic; else as 0",
            metavar="N",
        ),
    ] = -1
    max_itl_ms: Annotated[
        float,
        Field(ge=0, le=60_000),
        Option(
            ("--max-itl-ms",),
            "milliseconds that a step may take where requests decode beside a prompt: as much of "
            "it is computed as fits by the steps' own times; 0: no target",
            metavar="X",
        ),
    ] = 0.0
    context_shift: Annotated[
        bool,
        Option(
            ("--context-shift",),
            "a full slot drops old tokens and goes on, instead of ending the request",
            env="CONTEXT_SHIFT",
            off_flags=("--no-context-shift",),
        ),
    ] = False
    keep: Annotated[
        int,
        Field(ge=-1),
        Option(
            ("--keep",),
            "tokens of the prompt's beginning that a context shift keeps; -1: all of it",
            metavar="N",
        ),
    ] = 0
    slots: Annotated[
        bool,
        Option(
            ("--slots",),
            "serve GET /slots",
            env="ENDPOINT_SLOTS",
            off_flags=("--no-slots",),
        ),
    ] = True
    slot_save_path: Annotated[
        Path | None,
        Option(
            ("--slot-save-path",),
            "folder for POST /slots/N?action=save and restore; without it they are off",
            metavar="FOLDER",
        ),
    ] = None

    @field_validator("parallel")
    @classmethod
    def _check_parallel(cls, n: int) -> int:
        if n == 0:
            raise ValueError("must be -1 or at least 1")
        return n

    @field_validator("slot_save_path")
    @classmethod
    def _check_folder(cls, path: Path | None) -> Path | None:
        if path is not None and not path.is_dir():
            raise ValueError("is not a folder")
        return path

    def check_reuse(self) -> None:
        """Raises: ValueError beginning with a field's name."""
        if self.deterministic and self.cache_reuse > 0:
            raise ValueError(
                "cache_reuse: cannot be with deterministic: cells that moved have other values "
                "than computed ones"
            )

    @property
    def n_slots(self) -> int:
        """Requests that decode together."""
        return _AUTO_SLOTS if self.parallel < 0 else self.parallel

    @property
    def shares_cells(self) -> bool:
        """Whether every slot may use the whole context."""
        if self.parallel >= 0 or "kv_unified" in self.model_fields_set:
            return self.kv_unified
        return not self.deterministic

    @property
    def cache_bytes_max(self) -> int:
        """Host memory for prompts: what was asked for, within half of what is free now."""
        free = available_bytes() // 2
        return free if self.cache_ram < 0 else min(free, self.cache_ram * _MIB)
