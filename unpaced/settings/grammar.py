"""What every text must be if its request does not say."""

from functools import cached_property
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from unpaced.grammar.gbnf import parse_gbnf
from unpaced.grammar.schema import for_llguidance
from unpaced.grammar.spec import GrammarSpec
from unpaced.settings.options.option import Option
from unpaced.settings.options.option_group import OptionGroup


class GrammarSettings(OptionGroup):
    """What every text must be if its request does not say."""

    group: ClassVar[str] = "Grammar"

    grammar: Annotated[
        str,
        Option(
            ("--grammar",),
            "GBNF that every text follows whose request brings no grammar or schema",
            metavar="GBNF",
        ),
    ] = ""
    grammar_file: Annotated[
        Path | None, Option(("--grammar-file",), "the same from a file", metavar="FILE")
    ] = None
    json_schema: Annotated[
        str,
        Option(
            ("-j", "--json-schema"),
            "JSON schema that every text follows whose request brings no grammar or schema",
            metavar="SCHEMA",
        ),
    ] = ""
    json_schema_file: Annotated[
        Path | None,
        Option(("-jf", "--json-schema-file"), "the same from a file", metavar="FILE"),
    ] = None

    grammar_timeout: Annotated[
        float,
        Field(gt=0),
        Option(
            ("--grammar-timeout",),
            "seconds that compiling a grammar or schema may take; 400 beyond",
            metavar="S",
        ),
    ] = 10.0
    grammar_queue_timeout: Annotated[
        float,
        Field(gt=0),
        Option(
            ("--grammar-queue-timeout",),
            "seconds that a grammar or schema may wait to be compiled; 503 beyond",
            metavar="S",
        ),
    ] = 10.0

    @cached_property
    def grammar_default(self) -> GrammarSpec | None:
        """The grammar of these settings. Raises: ValueError beginning with a field's name."""
        given = [
            name
            for name in ("grammar", "grammar_file", "json_schema", "json_schema_file")
            if getattr(self, name)
        ]
        if not given:
            return None
        if len(given) > 1:
            raise ValueError(f"{given[1]}: cannot be combined with {given[0]}")
        name = given[0]
        value = getattr(self, name)
        if isinstance(value, Path):
            try:
                value = value.read_text()
            except (OSError, UnicodeDecodeError) as error:
                raise ValueError(f"{name}: cannot read {value}: {error}") from None
        try:
            if name.startswith("json_schema"):
                for_llguidance(value)
                return GrammarSpec("json_schema", value)
            spec = GrammarSpec.of_text(value)
            if spec.kind == "gbnf":
                parse_gbnf(spec.text)
            return spec
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
