"""Lists of LoRA adapters with their scales, as a request's `lora` and POST /lora-adapters have."""

import math
import struct
from collections.abc import Sequence
from typing import Any, Final

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from unpaced.values.json_values import fault

_SHAPE: Final = "must be an array of objects with 'id' and 'scale' fields"

Scales = tuple[tuple[int, float], ...]
"""Adapters by number, ascending, each once; scales as 32-bit floats."""


def read_scales(value: object) -> Scales:
    """The list's entries; of several for one adapter the last one, a missing scale is 0.

    Raises: ValueError.
    """
    if not isinstance(value, list):
        raise ValueError(_SHAPE)
    found: dict[int, float] = {}
    for entry in value:
        if not isinstance(entry, dict):
            raise ValueError(_SHAPE)
        index, scale = entry.get("id"), entry.get("scale", 0.0)
        if not isinstance(index, int) or isinstance(index, bool):
            raise ValueError(f"there is no adapter {index!r}")
        found[index] = _float32(scale)
    return tuple(sorted(found.items()))


def _float32(scale: object) -> float:
    if not isinstance(scale, int | float) or isinstance(scale, bool):
        raise ValueError("scale must be a number")
    try:
        rounded = float(struct.unpack("f", struct.pack("f", scale))[0])
    except OverflowError:
        rounded = math.inf
    if not math.isfinite(rounded):
        raise ValueError("scale must be a finite 32-bit number")
    return rounded


def scales_of_all(scales: Scales, n_adapters: int) -> tuple[float, ...]:
    """One scale for each adapter; those that are not named have 0. Raises: ValueError."""
    every = [0.0] * n_adapters
    for index, scale in scales:
        if not 0 <= index < n_adapters:
            raise ValueError(f"there is no adapter {index}")
        every[index] = scale
    return tuple(every)


def scales_to_json(scales: Sequence[tuple[int, float]]) -> list[dict[str, Any]]:
    """The scales as a response shows them."""
    return [{"id": index, "scale": scale} for index, scale in scales]


class LoraScales:
    """Pydantic metadata: a list of adapters with their scales."""

    def check(self, value: object) -> Scales:
        """The list's entries."""
        try:
            return read_scales(value)
        except ValueError as error:
            raise fault(str(error)) from None

    def __get_pydantic_core_schema__(self, _: Any, __: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            lambda value: None if value is None else self.check(value)
        )

    def __get_pydantic_json_schema__(
        self, _: CoreSchema, __: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        entry = {
            "type": "object",
            "properties": {"id": {"type": "integer"}, "scale": {"type": "number"}},
        }
        return {"anyOf": [{"type": "array", "items": entry}, {"type": "null"}]}
