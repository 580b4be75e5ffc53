"""Chat templates in Jinja2's sandbox, with what Hugging Face's templates expect of it.

Runs in the worker process only: an expression can take any time and memory, and only ending a
process ends it for sure. Source of the semantics: transformers, utils/chat_template_utils.py
(_compile_jinja_template), and llama.cpp 0c1e57098, common/jinja.
"""

import datetime
import json
from collections.abc import Iterator
from typing import Any, Final, NoReturn

import jinja2
import jinja2.meta
from jinja2.ext import Extension, LoopControlExtension
from jinja2.nodes import CallBlock, Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_OUTPUT_CHARS: Final = 16 * 2**20


class TemplateFailure(Exception):
    """The template cannot be compiled or refuses; the message is for the client."""


class LenientUndefined(jinja2.ChainableUndefined):
    """What is not there is empty, also to who looks into it, as in llama.cpp's templates."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self

    def __add__(self, other: Any) -> Any:
        return other if isinstance(other, str) else super().__add__(other)

    def __radd__(self, other: Any) -> Any:
        return other if isinstance(other, str) else super().__radd__(other)


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja2's sandbox; lists may grow, as in llama.cpp: some templates collect messages so."""

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Attributes that a template may read."""
        if isinstance(obj, list) and attr in ("append", "extend", "insert", "pop"):
            return True
        return super().is_safe_attribute(obj, attr, value)


class GenerationBlock(Extension):
    """`{% generation %}`: marks the assistant's text for training; here it is just its body."""

    tags = {"generation"}  # noqa: RUF012 - as the base class declares it

    def parse(self, parser: Parser) -> Node:
        """The block's body, as a call that returns it."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller: Any) -> str:
        return str(caller())


class CompiledTemplate:
    """One template, compiled once."""

    def __init__(self, source: str) -> None:
        environment = _new_environment()
        environment.filters["tojson"] = _to_json
        environment.filters["safe"] = (
            str  # nothing is escaped here: marking a text must not begin it
        )
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        self.environment = environment
        self.source = source
        try:
            tree = environment.parse(source)
            self.names = jinja2.meta.find_undeclared_variables(tree)
            self._template = environment.from_string(source)
        except Exception as error:  # whatever a template's constants evaluate to
            raise TemplateFailure(_explain(error)) from None

    def render(self, context: dict[str, Any]) -> str:
        """The prompt. Raises: TemplateFailure."""
        pieces = []
        n_chars = 0
        try:
            for piece in self._template.generate(context):
                pieces.append(piece)
                n_chars += len(piece)
                if n_chars > MAX_OUTPUT_CHARS:
                    raise TemplateFailure(f"its output exceeds {MAX_OUTPUT_CHARS} characters")
        except TemplateFailure:
            raise
        except Exception as error:  # a template can raise anything
            raise TemplateFailure(_explain(error)) from None
        return "".join(pieces)


def check_syntax(source: str) -> None:
    """Parse a template without evaluating anything of it. Raises: TemplateFailure."""
    try:
        _new_environment().parse(source)
    except Exception as error:
        raise TemplateFailure(_explain(error)) from None


def _new_environment() -> Sandbox:
    return Sandbox(
        undefined=LenientUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[LoopControlExtension, GenerationBlock],
    )


def _explain(error: Exception) -> str:
    if isinstance(error, jinja2.TemplateSyntaxError):
        return f"line {error.lineno}: {error.message}"
    if isinstance(error, MemoryError):
        return "it needs too much memory"
    if isinstance(error, RecursionError):
        return "it nests too deeply"
    return str(error) or type(error).__name__


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.datetime.now().strftime(form)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter escapes HTML."""
    if isinstance(value, jinja2.Undefined):
        return ""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        default=_listed,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _listed(value: Any) -> list[Any]:
    """Filters such as `map` give iterators."""
    if isinstance(value, Iterator):
        return list(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
