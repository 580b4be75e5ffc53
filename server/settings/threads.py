"""Which thread runs where."""

from typing import Annotated, ClassVar

from pydantic import BaseModel, Field

from server.settings.option import Option


class ThreadSettings(BaseModel):
    """Which thread runs where."""

    group: ClassVar[str] = "Threads and cores"

    threads: Annotated[
        int,
        Field(ge=-1),
        Option(
            ("-t", "--threads"),
            "threads while decoding; -1: one a physical core, less one for the front end",
            env="THREADS",
            metavar="N",
        ),
    ] = -1
    threads_batch: Annotated[
        int,
        Field(ge=-1),
        Option(
            ("-tb", "--threads-batch"),
            "threads while computing the prompt; -1: as --threads, else one a physical core",
            metavar="N",
        ),
    ] = -1
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
        Option(("--pin",), "give the decode thread a core of its own", off_flags=("--no-pin",)),
    ] = True
    poll: Annotated[
        int,
        Field(ge=0, le=100),
        Option(
            ("--poll",),
            "how long ggml's workers spin for work before they sleep, 0 to 100",
            metavar="N",
        ),
    ] = 50
    wake_interval_us: Annotated[
        int,
        Field(ge=0),
        Option(
            ("--wake-interval-us",),
            "tokens that come faster than this share a write to the client; 0: none does",
            metavar="N",
        ),
    ] = 1500
