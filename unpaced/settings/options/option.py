"""How one option is spelled on the command line and in the environment."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo


@dataclass(frozen=True, slots=True)
class Option:
    """Metadata of a settings field.

    `flags`: spellings on the command line. `env`: llama-server's environment name without
    `LLAMA_ARG_`; `env_name`: one that has no such prefix; `UNPACED_<FIELD>` always works.
    `off_flags`: spellings that mean false. `many`: may be given several times. `secret`: its value
    is never shown. `bare`: the value that the flag means where none follows.
    """

    flags: tuple[str, ...]
    help: str
    env: str | None = None
    off_flags: tuple[str, ...] = ()
    metavar: str | None = None
    many: bool = False
    env_name: str | None = None
    secret: bool = False
    bare: str | None = None

    @property
    def name(self) -> str:
        """The spelling that messages use: the longest."""
        return max(self.flags, key=len)

    def env_names(self, field: str) -> tuple[str, ...]:
        """Environment names, ours first."""
        llama_arg = None if self.env is None else f"LLAMA_ARG_{self.env}"
        names = (f"UNPACED_{field.upper()}", llama_arg, self.env_name)
        return tuple(name for name in names if name is not None)


def option_of(info: "FieldInfo") -> Option:
    """The option of a settings field; every field has one."""
    return next(item for item in info.metadata if isinstance(item, Option))


def is_switch(info: "FieldInfo") -> bool:
    """Whether a settings field is on or off (or neither) and its flags take no value."""
    return info.annotation in (bool, bool | None)
