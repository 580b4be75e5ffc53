"""What may come before a constrained answer: the model's reasoning, in llguidance's Lark.

Each function's rules lead from `start` to `answer`, which the caller adds. What is allowed follows
llama.cpp 0c1e57098, common/chat-auto-parser-generator.cpp:138, common/parsers/gpt-oss.cpp.
"""

from typing import Final

from unpaced.chat.tools.spelling import Spelling, quoted

_ANY: Final = "/(.|\\n)*/"
_SPACE: Final = "space: /\\n{0,2}/\n"


async def after_reasoning(spell: Spelling, end: str) -> str:
    """The prompt ends within reasoning, which must end: the answer may not."""
    body = await _until(spell, end)
    return f"start: reasoning_end space answer\n{body}{_SPACE}"


async def after_possible_reasoning(spell: Spelling, start: str, end: str) -> str:
    """The model may reason first. Its tag is one token if it can be: a budget counts from it."""
    body = await _until(spell, end)
    begin = await spell.of_tag(start)
    return f"start: stretch? space answer\nstretch: {begin} reasoning_end\n{body}{_SPACE}"


async def after_harmony_reasoning(spell: Spelling, *, opened: bool, answer_header: str) -> str:
    """gpt-oss: any number of messages on the channel of reasoning, then the answer's header."""
    header, turn = await spell.of("<|channel|>analysis<|message|>"), await spell.of("<|start|>")
    body = await _until(spell, "<|end|>")
    next_turn = f"{turn} {quoted('assistant')}"
    first = f"reasoning_end {next_turn} " if opened else ""
    last = f"{answer_header} " if answer_header else ""
    analysis = f"analysis: {header} reasoning_end {next_turn}\n"
    return f"start: {first}analysis* {last}answer\n{analysis}{body}"


async def harmony_final_header(spell: Spelling) -> str:
    """What a message of content begins with there, with or without the name of its format."""
    final, message = await spell.of("<|channel|>final"), await spell.of("<|message|>")
    return f"{final} ({await spell.of(' <|constrain|>json')})? {message}"


async def _until(spell: Spelling, end: str) -> str:
    """A rule for any text up to the mark, and the mark."""
    mark = await spell.of(end)
    if mark.startswith("<["):
        return f"reasoning_end: reasoning {mark}\nreasoning: {_ANY}\n"
    return f"reasoning_end: reasoning\nreasoning[suffix={mark}]: {_ANY}\n"
