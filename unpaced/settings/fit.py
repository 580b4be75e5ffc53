"""What is chosen so that the model fits the memory, where -c and -ngl leave it open."""

import re
from typing import Annotated, ClassVar, Final, Literal

from pydantic import BeforeValidator, Field, field_validator

from unpaced.settings.host_memory import available_bytes
from unpaced.settings.options.option import Option
from unpaced.settings.options.option_group import OptionGroup

_MIB: Final = 1 << 20
_NO_LESS: Final = 2**31 - 1
# llama-server's words, beside on and off.
_WORDS: Final = {"1": "on", "true": "on", "enabled": "on", "0": "off", "false": "off"} | {
    "disabled": "off"
}


class FitSettings(OptionGroup):
    """What is chosen so that the model fits the memory, where -c and -ngl leave it open."""

    group: ClassVar[str] = "Memory"

    fit: Annotated[
        Literal["on", "off"],
        BeforeValidator(lambda value: _WORDS.get(value, value)),
        Option(
            ("-fit", "--fit"),
            "on: without -c each slot has the training context, or as much of it as memory allows, "
            "and with -ngl auto as many layers as fit are on the GPU; off: nothing is made smaller",
            env="FIT",
            metavar="on|off",
        ),
    ] = "on"
    fit_target: Annotated[
        str,
        Option(
            ("-fitt", "--fit-target"),
            "MiB that --fit leaves free, of each GPU (comma-separated, or one number for all), or "
            "of the host without one",
            env="FIT_TARGET",
            metavar="LIST",
        ),
    ] = "1024"
    fit_ctx: Annotated[
        int,
        Field(ge=0),
        Option(
            ("-fitc", "--fit-ctx"),
            "tokens of context that --fit leaves a slot at least",
            env="FIT_CTX",
            metavar="N",
        ),
    ] = 4096

    @field_validator("fit_target")
    @classmethod
    def _check_target(cls, text: str) -> str:
        if not re.fullmatch(r"\d{1,9}([,/]\d{1,9})*", text):
            raise ValueError("must be numbers of MiB, comma-separated")
        return text

    @property
    def fit_margins(self) -> tuple[int, ...]:
        """`fit_target` in bytes."""
        return tuple(int(part) * _MIB for part in re.split("[,/]", self.fit_target))

    @property
    def fit_n_ctx_min(self) -> int:
        """Tokens a slot has at least; a context that was asked for as trained stays as trained."""
        return _NO_LESS if "ctx_size" in self.model_fields_set else self.fit_ctx

    @property
    def fit_host_bytes(self) -> int:
        """Host memory that there is to fit in."""
        return available_bytes()
