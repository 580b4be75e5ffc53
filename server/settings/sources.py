"""Where settings come from besides the command line: the environment and a TOML file."""

import os
import tomllib
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import PydanticBaseSettingsSource

from server.settings.option import is_switch, option_of

_TRUE = frozenset({"1", "true", "on", "enabled", "yes"})
_FALSE = frozenset({"0", "false", "off", "disabled", "no"})


class SettingsError(Exception):
    """A setting that cannot be used; the text names the flag, variable or file key."""


class EnvironmentSource(PydanticBaseSettingsSource):
    """`UNPACED_<FIELD>`, else llama-server's `LLAMA_ARG_<NAME>`, or `LLAMA_ARG_NO_<NAME>`."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """The variable that is set, and its name."""
        option = option_of(field)
        for name in option.env_names(field_name):
            value = os.environ.get(name)
            if value is not None and value != "":
                return _env_value(name, value, field), name, False
        if (
            option.env is not None
            and option.off_flags
            and f"LLAMA_ARG_NO_{option.env}" in os.environ
        ):
            return False, f"LLAMA_ARG_NO_{option.env}", False
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        values = {}
        for name, info in self.settings_cls.model_fields.items():
            value, _, _ = self.get_field_value(info, name)
            if value is not None:
                values[name] = value
        return values


class FileSource(PydanticBaseSettingsSource):
    """The TOML file that `config` names; keys are long flags, with `-` or `_`."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Not used: the file is read whole."""
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        path = self.current_state.get("config")
        if path is None:
            return {}
        try:
            table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise SettingsError(f"--config: cannot read {path}: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingsError(f"--config: {path} is not TOML: {error}") from None
        names = {}
        for name, info in self.settings_cls.model_fields.items():
            for flag in (*option_of(info).flags, name):
                if not flag.startswith("-") or flag.startswith("--"):
                    names[flag.lstrip("-").replace("-", "_")] = name
        values = {}
        for key, value in table.items():
            field = names.get(key.replace("-", "_"))
            if field is None or field == "config":
                raise SettingsError(f"--config: {path}: unknown key {key!r}")
            values[field] = value
        return values


def _env_value(name: str, value: str, field: FieldInfo) -> Any:
    if is_switch(field):
        if value.lower() in _TRUE:
            return True
        if value.lower() in _FALSE:
            return False
        raise SettingsError(f"{name}: neither true nor false: {value!r}")
    return (value,) if option_of(field).many else value
