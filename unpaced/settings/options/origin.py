"""Where a setting's value came from, for messages about it: flag, variable or key of the file."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from unpaced.settings.options.option import option_of
from unpaced.settings.options.sources import read_file, variable_of

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

# Where a value was checked by the engine, its error begins with the engine's name for it.
_FIELDS_OF_ENGINE_NAMES: Final = {
    "n_ctx": "ctx_size",
    "n_batch": "batch_size",
    "n_ubatch": "ubatch_size",
    "n_slots": "parallel",
    "n_threads": "threads",
    "n_threads_batch": "threads_batch",
    "temperature": "temp",
    "typical_p": "typical",
    "dynatemp_exponent": "dynatemp_exp",
    "dry_sequence_breakers": "dry_sequence_breaker",
    "mirostat_tau": "mirostat_ent",
    "mirostat_eta": "mirostat_lr",
}


def origin_of(
    name: str, fields: "Mapping[str, FieldInfo]", on_command_line: Mapping[str, Any]
) -> str:
    """What a message about the field `name` begins with. A default goes by its flag."""
    flag = option_of(fields[name]).name
    if name in on_command_line:
        return flag
    variable = variable_of(name, fields[name])
    if variable is not None:
        return variable
    path = on_command_line.get("config") or os.environ.get("UNPACED_CONFIG")
    if path and name in read_file(path, fields):
        return f"{path}: {flag.lstrip('-')}"
    return flag


def name_origin(
    message: str, fields: "Mapping[str, FieldInfo]", on_command_line: Mapping[str, Any]
) -> str:
    """A message of the form "field: what is wrong", with the origin in the field's place."""
    name, found, text = message.partition(": ")
    field = _FIELDS_OF_ENGINE_NAMES.get(name, name)
    if not found or field not in fields:
        return message
    return f"{origin_of(field, fields, on_command_line)}: {text}"
