"""What GET /metrics has."""

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, field_validator

from unpaced.settings.options.option import Option
from unpaced.settings.options.option_group import OptionGroup

_SERVERS: Final = ("llamacpp", "vllm")


class MetricsSettings(OptionGroup):
    """What GET /metrics has. Durations are seconds."""

    group: ClassVar[str] = "Metrics"

    metrics_compat: Annotated[
        str,
        Option(
            ("--metrics-compat",),
            "whose names /metrics has beside unpaced_*: llamacpp, vllm, both with a comma, or none",
            metavar="NAMES",
        ),
    ] = "llamacpp"
    gpu_metrics: Annotated[
        Literal["auto", "on", "off"],
        Option(
            ("--gpu-metrics",),
            "memory, utilisation, power and clocks of NVIDIA's GPUs in /metrics, by a process of "
            "its own: on, off, or auto: in builds with CUDA",
            metavar="MODE",
            bare="on",
        ),
    ] = "auto"
    gpu_metrics_interval: Annotated[
        float,
        Field(ge=0.1),
        Option(
            ("--gpu-metrics-interval",), "seconds between two readings of the GPUs", metavar="S"
        ),
    ] = 5.0

    @field_validator("metrics_compat")
    @classmethod
    def _check_compat(cls, names: str) -> str:
        given = [name.strip() for name in names.split(",")]
        if given != ["none"] and not set(given) <= set(_SERVERS):
            raise ValueError(f"must be {', '.join(_SERVERS)}, both or none")
        return names

    @property
    def metrics_names(self) -> frozenset[str]:
        """Servers whose names /metrics has, beside ours."""
        return frozenset(name.strip() for name in self.metrics_compat.split(",")) - {"none"}
