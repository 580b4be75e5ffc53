"""How calls of tools are written in a model's text."""

import re
from dataclasses import dataclass
from typing import Final, Literal

TAG_BEFORE_TAG: Final = re.compile(r"(?<=[>\]])\s+(?=[<\[])")


@dataclass(frozen=True, slots=True)
class ToolSyntax:
    """The marks around calls; whitespace at their ends is not significant.

    `section_*` stand around all calls, `call_*` around each one. By `kind`:
    * json: one object a call, or an array of them; `wrapper` is the key that holds name and
      arguments, if any.
    * named: `call_start NAME name_end [ID id_end] {arguments} call_end`.
    * tagged: `call_start NAME name_end (key_start KEY key_end VALUE value_end)* call_end`, values
      as text, in JSON where the parameter is not a string, or all in quotes.
    """

    kind: Literal["json", "named", "tagged"]
    section_start: str = ""
    call_start: str = ""
    call_end: str = ""
    section_end: str = ""
    array: bool = False
    wrapper: str = ""
    name_key: str = "name"
    arguments_key: str = "arguments"
    name_end: str = ""
    id_end: str = ""
    key_start: str = ""
    key_end: str = ""
    value_end: str = ""
    quoted: bool = False

    @property
    def trigger(self) -> str:
        """What a call begins with; empty: an answer that begins with JSON."""
        return self.section_start.strip() or self.call_start.strip()

    @property
    def first_tag(self) -> str:
        """What tells that a call begins: the first of two tags in a row, else the whole trigger."""
        return TAG_BEFORE_TAG.split(self.trigger)[0]

    @property
    def marks(self) -> tuple[str, ...]:
        """Every mark, for telling which special tokens must stay visible."""
        return tuple(
            mark
            for mark in (
                self.section_start,
                self.call_start,
                self.call_end,
                self.section_end,
                self.name_end,
                self.id_end,
                self.key_start,
                self.key_end,
                self.value_end,
            )
            if mark.strip()
        )


JSON_CALL = ToolSyntax(kind="json")
"""The form that we ask for where a template knows no tools."""
