"""Which thread runs where."""

from typing import Annotated, ClassVar

from pydantic import Field, field_validator

from engine_ext import Numa
from unpaced.settings.cores import cores_of_mask, cores_of_range
from unpaced.settings.options.option import Option
from unpaced.settings.options.option_group import OptionGroup


class ThreadSettings(OptionGroup):
    """Which thread runs where."""

    group: ClassVar[str] = "Threads and cores"

    threads: Annotated[
        int,
        Field(ge=-1),
        Option(
            ("-t", "--threads"),
            "threads while decoding; -1: one a physical core",
            env="THREADS",
            metavar="N",
        ),
    ] = -1
    threads_batch: Annotated[
        int,
        Field(ge=-1),
        Option(
            ("-tb", "--threads-batch"),
            "threads while computing the prompt; -1: as --threads",
            metavar="N",
        ),
    ] = -1
    cpu_mask: Annotated[
        str,
        Option(
            ("-C", "--cpu-mask"),
            "cores this process may use, as a hexadecimal mask; with --cpu-range: either's",
            metavar="MASK",
        ),
    ] = ""
    cpu_range: Annotated[
        str,
        Option(
            ("-Cr", "--cpu-range"), "cores this process may use, first to last", metavar="LO-HI"
        ),
    ] = ""
    cpu_strict: Annotated[
        int,
        Field(ge=0, le=1),
        Option(
            ("--cpu-strict",),
            "1: each of ggml's workers stays on one core, with --no-pin too",
            metavar="0|1",
        ),
    ] = 0
    prio: Annotated[
        int,
        Field(ge=-1, le=3),
        Option(
            ("--prio",),
            "priority of the process: -1 low, 0 normal, 1 medium, 2 high, 3 real time",
            metavar="N",
        ),
    ] = 0
    decode_core: Annotated[
        int | None,
        Field(ge=0),
        Option(
            ("--decode-core",),
            "core of the decode thread (default: the last one allowed)",
            metavar="CORE",
        ),
    ] = None
    pin: Annotated[
        bool,
        Option(
            ("--pin",),
            "the decode thread and each of ggml's workers stay on a core of their own",
            off_flags=("--no-pin",),
        ),
    ] = True
    poll: Annotated[
        int,
        Field(ge=0, le=100),
        Option(
            ("--poll",),
            "how long ggml's workers spin for work before they sleep, 0 to 100",
            metavar="N",
        ),
    ] = 1
    poll_batch: Annotated[
        int,
        Field(ge=-1, le=100),
        Option(
            ("--poll-batch",),
            "--poll while computing the prompt; -1: the same",
            metavar="N",
        ),
    ] = -1
    numa: Annotated[
        Numa | None,
        Option(
            ("--numa",),
            "several memory nodes: distribute, isolate or numactl (default: as one)",
            env="NUMA",
            metavar="TYPE",
        ),
    ] = None
    tokenizer_threads: Annotated[
        int,
        Field(ge=1, le=64),
        Option(
            ("--tokenizer-threads",),
            "threads that tokenise texts over 16 KiB; shorter ones have their own",
            metavar="N",
        ),
    ] = 2
    wake_interval_us: Annotated[
        int,
        Field(ge=0),
        Option(
            ("--wake-interval-us",),
            "tokens that come faster than this share a write to the client; 0: each has its own",
            metavar="N",
        ),
    ] = 1500

    @field_validator("cpu_mask")
    @classmethod
    def _check_mask(cls, mask: str) -> str:
        cores_of_mask(mask)
        return mask

    @field_validator("cpu_range")
    @classmethod
    def _check_range(cls, text: str) -> str:
        cores_of_range(text)
        return text

    def allowed_cores(self) -> frozenset[int]:
        """Cores that `cpu_mask` and `cpu_range` name; empty: all."""
        return cores_of_mask(self.cpu_mask) | cores_of_range(self.cpu_range)
