"""What the server bears, and how it ends."""

from typing import Annotated, ClassVar

from pydantic import Field, field_validator

from unpaced.settings.options.option import Option
from unpaced.settings.options.option_group import OptionGroup


class LimitSettings(OptionGroup):
    """What the server bears, and how it ends. Durations are seconds."""

    group: ClassVar[str] = "Limits and shutdown"

    max_queue_requests: Annotated[
        int,
        Field(ge=0),
        Option(
            ("--max-queue-requests",),
            "completions that may wait for a slot, shared by the clients; 503 beyond",
            metavar="N",
        ),
    ] = 256
    max_queue_tokens: Annotated[
        int,
        Field(ge=0),
        Option(
            ("--max-queue-tokens",),
            "prompt tokens that may wait for a slot, shared likewise; 503 beyond; 0: no limit",
            metavar="N",
        ),
    ] = 1_048_576
    max_body_bytes: Annotated[
        int,
        Field(ge=1024),
        Option(("--max-body-bytes",), "longest request body; 413 beyond", metavar="N"),
    ] = 8 * 1024 * 1024
    max_json_depth: Annotated[
        int,
        Field(ge=16, le=200),
        Option(
            ("--max-json-depth",),
            "arrays and objects in each other in a request body; 400 beyond",
            metavar="N",
        ),
    ] = 128
    max_json_values: Annotated[
        int,
        Field(ge=1024),
        Option(
            ("--max-json-values",),
            "values and keys in a request body, numbers not counted; 400 beyond",
            metavar="N",
        ),
    ] = 131_072
    max_json_numbers: Annotated[
        int,
        Field(ge=1024),
        Option(
            ("--max-json-numbers",),
            "numbers in a request body, token ids say; 400 beyond",
            metavar="N",
        ),
    ] = 1_048_576
    max_tools: Annotated[
        int,
        Field(ge=1),
        Option(("--max-tools",), "tools that a request may offer; 400 beyond", metavar="N"),
    ] = 1024
    max_logit_bias: Annotated[
        int,
        Field(ge=1),
        Option(
            ("--max-logit-bias",),
            "tokens that a request's logit_bias may name, by texts of 8 letters each; 400 beyond",
            metavar="N",
        ),
    ] = 32_768
    max_header_bytes: Annotated[
        int,
        Field(ge=1024),
        Option(
            ("--max-header-bytes",), "longest request line and headers; 431 beyond", metavar="N"
        ),
    ] = 64 * 1024
    header_timeout: Annotated[
        float,
        Field(gt=0),
        Option(("--header-timeout",), "seconds a client has for its headers", metavar="S"),
    ] = 10.0
    body_timeout: Annotated[
        float,
        Field(gt=0),
        Option(("--body-timeout",), "seconds a client has for its body", metavar="S"),
    ] = 30.0
    send_timeout: Annotated[
        float,
        Field(gt=0),
        Option(
            ("-to", "--timeout", "--send-timeout"),
            "seconds a client may read nothing of its answer before it is cut off",
            env="TIMEOUT",
            metavar="S",
        ),
    ] = 30.0
    drain_timeout: Annotated[
        float,
        Field(ge=0),
        Option(
            ("--drain-timeout",), "seconds that running requests have after SIGTERM", metavar="S"
        ),
    ] = 30.0
    sleep_idle_seconds: Annotated[
        int,
        Field(ge=-1),
        Option(
            ("--sleep-idle-seconds",),
            "free the model after so long without requests; the next one loads it; -1: never",
            metavar="S",
        ),
    ] = -1
    stall_timeout: Annotated[
        float,
        Field(ge=0),
        Option(
            ("--stall-timeout",),
            "seconds without any progress of the decode thread or the GPU after which it counts as "
            "lost: requests fail and the process ends with status 70; /health/ready says 503 after "
            "half of it; ten times as long where the driver compiles the kernels; 0: never",
            metavar="S",
        ),
    ] = 60.0
    stop_timeout: Annotated[
        float,
        Field(gt=0),
        Option(
            ("--stop-timeout",),
            "seconds that the engine has to come to an end, after --drain-timeout; then the "
            "process ends without it, with status 70",
            metavar="S",
        ),
    ] = 5.0
    supervise: Annotated[
        bool,
        Option(
            ("--supervise",),
            "serve in a process of its own, which is replaced where it dies or hangs; this one "
            "keeps the sockets, and ends with status 1 for what somebody has to put right, or "
            "after five starts in a row that failed (docs/operating.md)",
            off_flags=("--no-supervise",),
        ),
    ] = False

    @field_validator("sleep_idle_seconds")
    @classmethod
    def _check_sleep(cls, seconds: int) -> int:
        if seconds == 0:
            raise ValueError("must be above 0, or -1 for never")
        return seconds
