"""The sampler chain's names on the wire.

Source: llama.cpp 0c1e57098, common/sampling.cpp (common_sampler_types_from_names, ..._from_chars).
"""

from collections.abc import Sequence
from typing import Any, Final, cast

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from unpaced.values.json_values import wrong_type

_BY_LETTER: Final = {
    "e": "penalties",
    "d": "dry",
    "s": "top_n_sigma",
    "k": "top_k",
    "y": "typ_p",
    "p": "top_p",
    "m": "min_p",
    "x": "xtc",
    "t": "temperature",
    "i": "infill",
    "a": "adaptive_p",
}
_BY_NAME: Final = {
    alias: name
    for name in _BY_LETTER.values()
    for alias in (name, name.replace("_", "-"), name.replace("_", ""))
} | {"nucleus": "top_p", "typ": "typ_p", "temp": "temperature"}


def known_and_unknown(wanted: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The chain that names, in any case, or a string of letters ask for, and what names none.

    llama-server leaves the latter out with a line in its log.
    """
    chain, unknown = [], []
    for one in wanted:
        known = _BY_LETTER.get(one) if isinstance(wanted, str) else _BY_NAME.get(one.lower())
        if known is None:
            unknown.append(one)
        else:
            chain.append(known)
    return tuple(chain), tuple(unknown)


def chain_of(wanted: Sequence[str]) -> tuple[str, ...]:
    """The names that are known. Raises: ValueError naming the first that is unknown."""
    chain, unknown = known_and_unknown(wanted)
    if unknown:
        raise ValueError(f"unknown sampler '{unknown[0]}'")
    return chain


def unknown_samplers(value: object) -> tuple[str, ...]:
    """What a request's `samplers` name and we do not have; `value` may be of any type."""
    if isinstance(value, str) or _is_strings(value):
        return known_and_unknown(cast(Sequence[str], value))[1]
    return ()


def _is_strings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


class Chain:
    """Pydantic metadata: an array of names or a string of letters; unknown ones are left out."""

    def check(self, value: object) -> tuple[str, ...]:
        """The chain by our names."""
        if isinstance(value, str) or _is_strings(value):
            return known_and_unknown(cast(Sequence[str], value))[0]
        raise wrong_type("string or array of strings", value)

    def __get_pydantic_core_schema__(self, _: Any, __: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            lambda value: None if value is None else self.check(value)
        )

    def __get_pydantic_json_schema__(
        self, _: CoreSchema, __: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        names = {"type": "array", "items": {"type": "string"}}
        return {"anyOf": [names, {"type": "string"}, {"type": "null"}]}
