"""A model's reasoning in its text: the tags around it, and when it must end."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_ext import ReasoningBudget
from unpaced.http.errors import invalid_field

if TYPE_CHECKING:
    from engine_ext import Engine
    from unpaced.schemas.completion import CompletionBody


@dataclass(frozen=True, slots=True)
class Reasoning:
    """`start` begins reasoning, each of `ends` ends it. `begun` is the end of the prompt, as far as
    it is the answer's beginning and may have begun or ended reasoning.

    After `n_tokens` of reasoning (-1: never) come `message` and the first of `ends`. With
    `can_be_ended` another request may end it while it lasts.
    """

    start: str
    ends: tuple[str, ...]
    n_tokens: int = -1
    message: str = ""
    can_be_ended: bool = False
    begun: str = ""
    is_tag_begun: bool = False
    """`begun` begins with a tag of reasoning that it does not end, whatever its tokens are."""


def read_reasoning(body: "CompletionBody") -> Reasoning | None:
    """Of the fields of a body without a chat template. Raises: ApiError (400) naming the field."""
    if body.generation_prompt and body.json_schema is not None:
        raise invalid_field("generation_prompt", "not supported together with json_schema")
    start, ends = body.reasoning_budget_start_tag, body.reasoning_budget_end_tags
    if start and ends:
        return _reasoning(body, start, ends)
    budget = body.reasoning_budget_tokens
    for name, is_wanted in (
        ("reasoning_budget_tokens", budget is not None and budget >= 0),
        ("reasoning_control", bool(body.reasoning_control)),
    ):
        if is_wanted:
            raise invalid_field(
                name, "needs reasoning_budget_start_tag and reasoning_budget_end_tags"
            )
    return None


def read_chat_reasoning(body: "CompletionBody") -> Reasoning | None:
    """The same for a chat whose template has no tags. Without reasoning there is nothing to end."""
    start, ends = body.reasoning_budget_start_tag, body.reasoning_budget_end_tags
    return _reasoning(body, start, ends) if start and ends else None


def _reasoning(body: "CompletionBody", start: str, ends: tuple[str, ...]) -> Reasoning:
    return Reasoning(
        start=start,
        ends=ends,
        n_tokens=-1 if body.reasoning_budget_tokens is None else body.reasoning_budget_tokens,
        message=body.reasoning_budget_message or "",
        can_be_ended=bool(body.reasoning_control),
        begun=body.generation_prompt or "",
    )


async def reasoning_budget(
    engine: "Engine", reasoning: Reasoning | None, *, has_lazy_grammar: bool
) -> ReasoningBudget | None:
    """In tokens; None where reasoning may last as it likes and nothing needs to know of it.

    Source: llama.cpp 0c1e57098, server-schema.cpp:384-433, sampling.cpp:274-322.
    """
    if reasoning is None:
        return None
    if reasoning.n_tokens < 0 and not reasoning.can_be_ended and not has_lazy_grammar:
        return None
    start = await _tokens(engine, reasoning.start)
    ends = tuple([await _tokens(engine, end) for end in reasoning.ends])
    message = await _tokens(engine, reasoning.message) if reasoning.message else ()
    return ReasoningBudget(
        start=start,
        ends=ends,
        forced=message + ends[0],
        n_tokens=reasoning.n_tokens,
        prompt=await _begun(engine, reasoning, start),
        suspends_grammar=has_lazy_grammar,
    )


async def _begun(engine: "Engine", reasoning: Reasoning, start: tuple[int, ...]) -> tuple[int, ...]:
    text = reasoning.begun
    if not text:
        return ()
    tokens = await _tokens(engine, text)
    piece = engine.token_pieces_special[tokens[0]]
    if piece[:1].isspace() and not text[:1].encode(errors="replace").isspace():
        tokens = tokens[1:]  # some tokenisers put a space before the first word
    if reasoning.is_tag_begun and tokens[: len(start)] != start:
        # The tag is spelled with tokens that reach into what follows it.
        rest = text.removeprefix(reasoning.start)
        tokens = start + (await _tokens(engine, rest) if rest else ())
    return tokens


async def _tokens(engine: "Engine", text: str) -> tuple[int, ...]:
    return tuple(await engine.tokenize(text, add_special=False, parse_special=True))
