"""The sampler chain's names on the wire.

Source: llama.cpp 0c1e57098, common/sampling.cpp (common_sampler_types_from_names, ..._from_chars).
"""

from typing import Any, Final

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from server.schemas.values import fault, wrong_type

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
    alias: name for name in _BY_LETTER.values() for alias in (name, name.replace("_", ""))
} | {
    "top_sigma": "top_n_sigma",
    "nucleus": "top_p",
    "typical_p": "typ_p",
    "typical": "typ_p",
    "typ": "typ_p",
    "temp": "temperature",
}


def chain_from_names(names: list[str]) -> tuple[str, ...]:
    """The chain that a list of names asks for; case and `-` for `_` do not matter.

    Raises: ValueError for a name we do not have, where llama-server only warns.
    """
    chain = []
    for name in names:
        known = _BY_NAME.get(name.strip().lower().replace("-", "_"))
        if known is None:
            raise ValueError(f"unknown sampler '{name}'")
        chain.append(known)
    return tuple(chain)


def chain_from_letters(letters: str) -> tuple[str, ...]:
    """The chain of llama-server's one-letter form, such as "edskypmxt".

    Raises: ValueError for an unknown letter.
    """
    for letter in letters:
        if letter not in _BY_LETTER:
            raise ValueError(f"unknown sampler '{letter}'")
    return tuple(_BY_LETTER[letter] for letter in letters)


class Chain:
    """Pydantic metadata: an array of names or a string of letters."""

    def check(self, value: object) -> tuple[str, ...]:
        """The chain by our names."""
        try:
            if isinstance(value, str):
                return chain_from_letters(value)
            if isinstance(value, list) and all(isinstance(item, str) for item in value):
                return chain_from_names(value)
        except ValueError as error:
            raise fault(str(error)) from None
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
