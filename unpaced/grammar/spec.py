"""What a request wants its text to be, before it is compiled."""

from dataclasses import dataclass
from typing import Any, Final, Literal

import orjson

from engine_ext import GrammarTrigger, GrammarWait

_LARK_MARK: Final = "%llguidance"
GrammarSource = Literal["json_schema", "gbnf", "regex", "lark"]


@dataclass(frozen=True, slots=True)
class GrammarSpec:
    """A grammar's source. `kind`: what language `text` is in; a JSON schema is JSON text.

    `triggers`: the text is free until one of them comes; empty: the grammar holds from the first
    token on. A tool call after free text is a trigger and the grammar of the call; the answer after
    a reasoning block is a trigger outside the grammar (`inside=False`) and the answer's schema.
    """

    kind: GrammarSource
    text: str
    triggers: tuple[GrammarTrigger, ...] = ()
    quiet: tuple[str, str] = ("", "")
    """Tags around reasoning, in which no trigger counts."""
    is_quiet: bool = False
    """The text begins within reasoning."""
    may_resume: bool = False
    """A trigger after which the grammar cannot go on does not count; else the request fails."""
    lead: str = ""
    """Of a JSON schema: Lark rules from `start` to `answer`, the JSON; empty: nothing precedes."""

    @classmethod
    def of_schema(cls, schema: Any, triggers: tuple[GrammarTrigger, ...] = ()) -> "GrammarSpec":
        """Of a parsed JSON schema."""
        return cls("json_schema", orjson.dumps(schema).decode(), triggers)

    @classmethod
    def of_text(cls, text: str) -> "GrammarSpec":
        """Of a `grammar` field or flag: GBNF, or Lark where it begins with %llguidance, as in
        llama-server's builds with llguidance."""
        return cls("lark" if text.lstrip().startswith(_LARK_MARK) else "gbnf", text)

    @property
    def wait(self) -> GrammarWait | None:
        """What the grammar waits for; None: it holds from the first token on."""
        if not self.triggers:
            return None
        quiet = (self.quiet[0].encode(), self.quiet[1].encode())
        return GrammarWait(self.triggers, quiet, self.is_quiet, self.may_resume)

    @property
    def shown(self) -> str:
        """What `generation_settings` shows: GBNF as it came, the rest as llguidance's Lark."""
        if self.kind == "json_schema":
            return json_lark(self.text, self.lead)
        if self.kind == "regex":
            return f"%llguidance {{}}\nstart: /{self.text}/"
        return self.text


def json_lark(schema: str, lead: str) -> str:
    """llguidance's Lark for JSON of a schema after what `lead` has."""
    return f"%llguidance {{}}\n{lead or 'start: '}{'answer: ' if lead else ''}%json {schema}"


ANY_OBJECT = GrammarSpec.of_schema({"type": "object"})


def trigger_json(trigger: GrammarTrigger) -> dict[str, Any]:
    """What llama-server shows: type 0 is a token, 1 a word."""
    word = trigger.word.decode(errors="replace")
    if trigger.token < 0:
        return {"type": 1, "value": word}
    return {"type": 0, "value": word, "token": trigger.token}
