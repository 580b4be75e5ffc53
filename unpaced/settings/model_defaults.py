"""Sampling defaults that a model brings along, in place of the server's where nobody set them."""

import contextlib
import math
from collections.abc import Mapping
from typing import Any, Final

from unpaced.settings.settings import Settings
from unpaced.values.samplers import known_and_unknown

_PREFIX: Final = "general.sampling."
# Source: llama.cpp 0c1e57098 common/common.cpp:1118-1176.
_INTEGERS: Final = {
    "top_k": "top_k",
    "penalty_last_n": "repeat_last_n",
    "mirostat": "mirostat",
}
_FLOATS: Final = {
    "top_p": "top_p",
    "min_p": "min_p",
    "xtc_probability": "xtc_probability",
    "xtc_threshold": "xtc_threshold",
    "temp": "temp",
    "penalty_repeat": "repeat_penalty",
    "mirostat_tau": "mirostat_ent",
    "mirostat_eta": "mirostat_lr",
}


def with_model_defaults(settings: Settings, metadata: Mapping[str, str]) -> Settings:
    """`settings` with what the model's `general.sampling.*` say, for fields that nobody set.

    Values that cannot be read, or that this server does not take, are left out.
    """
    changed: dict[str, Any] = {}
    for key, text in metadata.items():
        name = key.removeprefix(_PREFIX)
        field = _INTEGERS.get(name) or _FLOATS.get(name)
        if field is None or field in settings.model_fields_set:
            continue
        with contextlib.suppress(ValueError):
            value = float(text)
            if math.isfinite(value):
                changed[field] = int(value) if name in _INTEGERS else value
    names = metadata.get(f"{_PREFIX}sequence", "")
    if names and not settings.model_fields_set & {"samplers", "sampler_seq"}:
        changed["samplers"] = ";".join(known_and_unknown(names.split(";"))[0])
    for field, value in changed.items():
        candidate = settings.model_copy(update={field: value})
        with contextlib.suppress(ValueError):
            candidate.sampling_defaults()
            settings = candidate
    return settings
