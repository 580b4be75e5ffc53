"""Where the server listens and what it offers."""

from typing import Annotated, ClassVar

from pydantic import Field, field_validator

from unpaced.settings.options.option import Option
from unpaced.settings.options.option_group import OptionGroup


class HttpSettings(OptionGroup):
    """Where the server listens and what it offers. Durations are seconds."""

    group: ClassVar[str] = "HTTP"

    host: Annotated[
        str,
        Option(
            ("--host",),
            "addresses to listen on, comma-separated; one that ends in .sock is a Unix socket",
            env="HOST",
            metavar="ADDRESS",
        ),
    ] = "127.0.0.1"
    port: Annotated[
        int,
        Field(ge=0, le=65535),
        Option(("--port",), "port to listen on; 0: any free one", env="PORT", metavar="N"),
    ] = 8080
    reuse_port: Annotated[
        bool,
        Option(("--reuse-port",), "let other sockets listen on the port too", env="REUSE_PORT"),
    ] = False
    api_prefix: Annotated[
        str,
        Option(
            ("--api-prefix",),
            "path in front of every route, such as /llm",
            env="API_PREFIX",
            metavar="PATH",
        ),
    ] = ""
    metrics: Annotated[
        bool,
        Option(
            ("--metrics",),
            "serve GET /metrics for Prometheus",
            env="ENDPOINT_METRICS",
            off_flags=("--no-metrics",),
        ),
    ] = True
    props: Annotated[
        bool, Option(("--props",), "serve POST /props, which changes nothing", env="ENDPOINT_PROPS")
    ] = False
    sse_ping_interval: Annotated[
        int,
        Field(ge=-1),
        Option(
            ("--sse-ping-interval",),
            "seconds of silence before a comment keeps a stream alive; -1: never",
            env="SSE_PING_INTERVAL",
            metavar="S",
        ),
    ] = 30

    @field_validator("api_prefix")
    @classmethod
    def _check_prefix(cls, prefix: str) -> str:
        if prefix and not prefix.startswith("/"):
            raise ValueError("must begin with a slash")
        return prefix.rstrip("/")
