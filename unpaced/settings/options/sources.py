"""Where settings come from besides the command line: the environment and a TOML file."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unpaced.settings.options.option import is_switch, option_of
from unpaced.settings.options.suggestion import did_you_mean

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

_TRUE = frozenset({"1", "true", "on", "enabled", "yes"})
_FALSE = frozenset({"0", "false", "off", "disabled", "no"})


class SettingsError(Exception):
    """A setting that cannot be used; the text names the flag, variable or file key."""


def read_environment(fields: "Mapping[str, FieldInfo]") -> dict[str, Any]:
    """Values by field: `UNPACED_<FIELD>`, else llama-server's `LLAMA_ARG_<NAME>`, or
    `LLAMA_ARG_NO_<NAME>`. Raises: SettingsError."""
    values = {name: _variable(name, field) for name, field in fields.items()}
    return {name: value for name, value in values.items() if value is not None}


def variable_of(field_name: str, field: "FieldInfo") -> str | None:
    """The variable that sets a field; None: the environment does not."""
    option = option_of(field)
    for name in option.env_names(field_name):
        if os.environ.get(name):
            return name
    off = f"LLAMA_ARG_NO_{option.env}"
    return off if option.env is not None and option.off_flags and off in os.environ else None


def _variable(field_name: str, field: "FieldInfo") -> Any:
    name = variable_of(field_name, field)
    if name is None:
        return None
    if name not in option_of(field).env_names(field_name):
        return False
    return _env_value(name, os.environ[name], field)


def _env_value(name: str, value: str, field: "FieldInfo") -> Any:
    if is_switch(field):
        if value.lower() in _TRUE:
            return True
        if value.lower() in _FALSE:
            return False
        raise SettingsError(f"{name}: neither true nor false: {value!r}")
    return (value,) if option_of(field).many else value


def read_file(path: str | Path, fields: "Mapping[str, FieldInfo]") -> dict[str, Any]:
    """Values by field from the TOML file of `--config`; keys are long flags, with `-` or `_`.

    Raises: SettingsError.
    """
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"--config: cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"--config: {path} is not TOML: {error}") from None
    names = {}
    for name, field in fields.items():
        for flag in (*option_of(field).flags, name):
            if not flag.startswith("-") or flag.startswith("--"):
                names[flag.lstrip("-").replace("-", "_")] = name
    values = {}
    for key, value in table.items():
        name = names.get(key.replace("-", "_"), "config")
        if name == "config":
            hint = did_you_mean(key.replace("_", "-"), [n.replace("_", "-") for n in names])
            raise SettingsError(f"--config: {path}: unknown key {key!r}{hint}")
        values[name] = value
    return values
