"""Checks of single JSON values, with llama-server's limits and wording.

Each class is pydantic metadata: `Annotated[int | None, Whole(0, 10)]`. A JSON null means "absent",
as in llama-server. "Hard" limits answer 400, "soft" ones clamp.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Final

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

INT32_MAX: Final = 2**31 - 1
_JSON_NAMES: Final = {
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
    type(None): "null",
}


def fault(message: str) -> PydanticCustomError:
    """An error whose text goes to the client as it is."""
    return PydanticCustomError("field", "{message}", {"message": message})


def json_type(value: object) -> str:
    """JSON's name for the type of a parsed value."""
    return _JSON_NAMES.get(type(value), type(value).__name__)


def wrong_type(wanted: str, value: object) -> PydanticCustomError:
    """A value of another JSON type."""
    return fault(f"type must be {wanted}, but is {json_type(value)}")


class _Checked(ABC):
    """What pydantic asks of each check: null stays null, anything else goes through `check`."""

    __slots__ = ()

    @abstractmethod
    def check(self, value: object) -> Any:
        """The value as the server has it. Raises: PydanticCustomError."""

    def __get_pydantic_core_schema__(self, _: Any, __: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            lambda value: None if value is None else self.check(value)
        )


@dataclass(frozen=True, slots=True)
class Whole(_Checked):
    """An integer. A float without fraction counts as one: some clients have no integers."""

    low: int | None = None
    high: int | None = None
    soft: bool = False
    switch: bool = False  # true and false count as 1 and 0

    def check(self, value: object) -> int:
        """The integer, within limits."""
        if (isinstance(value, float) and value.is_integer()) or (
            self.switch and isinstance(value, bool)
        ):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise wrong_type("number", value)
        if isinstance(value, float):
            raise fault(f"Value must be an integer, but got {value}")
        low = -(2**63) if self.low is None else self.low
        high = 2**64 - 1 if self.high is None else self.high
        if self.soft:
            return max(low, min(high, value))
        if not low <= value <= high:
            raise fault(f"Value must be between {low} <= value <= {high}, but got {value}")
        return value

    def __get_pydantic_json_schema__(
        self, _: CoreSchema, __: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        limits = {} if self.soft else {"minimum": self.low, "maximum": self.high}
        types = ["integer", *(["boolean"] if self.switch else []), "null"]
        return {"type": types} | {k: v for k, v in limits.items() if v is not None}


@dataclass(frozen=True, slots=True)
class Real(_Checked):
    """A finite number that fits a 32-bit float."""

    low: float | None = None
    high: float | None = None
    soft: bool = True

    def check(self, value: object) -> float:
        """The number, within limits."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise wrong_type("number", value)
        number = float(value)
        if not abs(number) <= 3.4028234663852886e38:
            raise fault(f"Value must be a finite 32-bit number, but got {number}")
        low = -3.4028234663852886e38 if self.low is None else self.low
        high = 3.4028234663852886e38 if self.high is None else self.high
        if not self.soft and not low <= number <= high:
            raise fault(f"Value must be between {low} <= value <= {high}, but got {number}")
        return max(low, min(high, number))

    def __get_pydantic_json_schema__(
        self, _: CoreSchema, __: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        limits = {} if self.soft else {"minimum": self.low, "maximum": self.high}
        return {"type": ["number", "null"]} | {k: v for k, v in limits.items() if v is not None}


@dataclass(frozen=True, slots=True)
class Switch(_Checked):
    """A boolean."""

    def check(self, value: object) -> bool:
        """The boolean."""
        if not isinstance(value, bool):
            raise wrong_type("boolean", value)
        return value

    def __get_pydantic_json_schema__(
        self, _: CoreSchema, __: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"type": ["boolean", "null"]}


@dataclass(frozen=True, slots=True)
class Text(_Checked):
    """A string."""

    n_chars_max: int = 2**20

    def check(self, value: object) -> str:
        """The string."""
        if not isinstance(value, str):
            raise wrong_type("string", value)
        if len(value) > self.n_chars_max:
            raise fault(f"at most {self.n_chars_max} characters, but got {len(value)}")
        return value

    def __get_pydantic_json_schema__(
        self, _: CoreSchema, __: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"type": ["string", "null"], "maxLength": self.n_chars_max}


@dataclass(frozen=True, slots=True)
class Name(_Checked):
    """One of several strings. `what` says what they name."""

    names: tuple[str, ...]
    what: str

    def check(self, value: object) -> str:
        """The string."""
        if not isinstance(value, str):
            raise wrong_type("string", value)
        if value not in self.names:
            raise fault(f"Unknown {self.what}: {value}")
        return value

    def __get_pydantic_json_schema__(
        self, _: CoreSchema, __: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"enum": [*self.names, None]}


@dataclass(frozen=True, slots=True)
class Strings(_Checked):
    """A list of strings, or with `one` also a single string; bounded."""

    one: bool = False
    n_max: int = 256
    n_chars_max: int = 4096
    keeps_empty: bool = False

    def check(self, value: object) -> tuple[str, ...]:
        """The strings, empty ones left out unless `keeps_empty`."""
        if isinstance(value, str) and self.one:
            value = [value]
        if not isinstance(value, list):
            raise wrong_type("string or array" if self.one else "array", value)
        for item in value:
            if not isinstance(item, str):
                raise wrong_type("string", item)
            if len(item) > self.n_chars_max:
                raise fault(f"at most {self.n_chars_max} characters a string")
        if len(value) > self.n_max:
            raise fault(f"at most {self.n_max} strings, but got {len(value)}")
        return tuple(item for item in value if item or self.keeps_empty)

    def __get_pydantic_json_schema__(
        self, _: CoreSchema, __: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        array = {"type": "array", "items": {"type": "string"}, "maxItems": self.n_max}
        return {"anyOf": [*([{"type": "string"}] if self.one else []), array, {"type": "null"}]}


@dataclass(frozen=True, slots=True)
class Only(_Checked):
    """A field we know and cannot honour: accepted with one of the values that mean "off"."""

    allowed: tuple[object, ...]
    reason: str

    def check(self, value: object) -> object:
        """The value, where it changes nothing."""
        for allowed in self.allowed:
            if value == allowed and isinstance(value, bool) == isinstance(allowed, bool):
                return value
        raise fault(self.reason)

    def __get_pydantic_json_schema__(
        self, _: CoreSchema, __: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"enum": [*self.allowed, None], "description": self.reason}
