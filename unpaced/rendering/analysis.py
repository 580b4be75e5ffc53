"""What a template tells about the model's answers: capabilities, reasoning tags, tool calls.

Nothing is read from the template's text if rendering can show it: an assistant message with marks
in it is rendered, and what stands around the marks is what the model was trained to write.
"""

import re
from typing import Any, Final

from unpaced.rendering.capabilities import Trial, probe
from unpaced.rendering.environment import CompiledTemplate
from unpaced.rendering.tool_syntax import find_tool_syntax

# Tags that models write although their templates drop or hide the reasoning of earlier turns.
_KNOWN_TAGS: Final = (
    ("<|channel|>analysis<|message|>", "<|end|>"),
    ("<|channel>thought", "<channel|>"),
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
    ("<thinking>", "</thinking>"),
    ("<reasoning>", "</reasoning>"),
)
# What llama-server takes for the white space in these tags, whatever the template shows: texts that
# tell the template, opening, closing. Source: llama.cpp 0c1e57098, common/chat-diff-analyzer.cpp,
# common/parsers/gemma4.cpp, common/parsers/qwen3-coder.cpp.
_KNOWN_SPACING: Final = (
    (("'<|tool_call>call:'",), "<|channel>thought\n", "<channel|>"),
    (("<SPECIAL_10>", "<SPECIAL_12>", "<TOOL_RESPONSE>"), "<think>\n", "</think>"),
    (("<tool_call>\\n<function=", "<parameter="), "<think>\n", "\n</think>\n\n"),
)
_TAG: Final = re.compile(r"(?:<[^<>\s]{1,40}>|\[/?[A-Z_ ]{2,40}\])")
_USER: Final = {"role": "user", "content": "U5ER"}


def analyse(template: CompiledTemplate) -> dict[str, Any]:
    """Everything the server wants to know of a template, as JSON."""
    caps = probe(template)
    reasoning = _reasoning(template)
    tools = find_tool_syntax(template, caps) if caps.supports_tool_calls else None
    if tools is not None and reasoning is not None:  # no reasoning before the calls
        tools["section_start"] = tools["section_start"].rpartition(reasoning["end"])[2]
    return {
        "capabilities": caps.to_json(),
        "reasoning": reasoning,
        "tools": tools,
    }


def _reasoning(template: CompiledTemplate) -> dict[str, str] | None:
    """The tags, and the exact text that stands before and after the reasoning of a message."""
    answer = {"role": "assistant", "content": "C0NTENT", "reasoning_content": "REAS0NING"}
    trial = Trial(template, [_USER, answer], variables={"enable_thinking": True})
    before, found, after = (trial.text or "").partition("REAS0NING")
    tags = _known_tags(template) or (_shown_tags(before, after) if found else None)
    if tags is None:
        return None
    start, end = tags
    opening, closing = start, end
    if found and start in before:
        opening = before[before.rindex(start) :]
    if found and "C0NTENT" in after and end in after:
        closing = after[: after.index("C0NTENT")]
    if start == "<|channel|>analysis<|message|>":  # the answer is a message of its own
        closing = f"{end}<|start|>assistant<|channel|>final<|message|>"
    for marks, known_opening, known_closing in _KNOWN_SPACING:
        if known_opening.strip() == start and all(mark in template.source for mark in marks):
            opening, closing = known_opening, known_closing
    return {"start": start, "end": end, "opening": opening, "closing": closing}


def _known_tags(template: CompiledTemplate) -> tuple[str, str] | None:
    for start, end in _KNOWN_TAGS:
        if start in template.source and end in template.source:
            return start, end
    return None


def _shown_tags(before: str, after: str) -> tuple[str, str] | None:
    end_tag = _TAG.match(after.lstrip())
    start_tag = list(_TAG.finditer(before.rstrip()))
    if end_tag is None or not start_tag or start_tag[-1].end() != len(before.rstrip()):
        return None
    start, end = start_tag[-1][0], end_tag[0]
    # Anything else is the turn's own header or end.
    is_pair = end in (f"{start[0]}/{start[1:]}", start.replace("START", "END"))
    return (start, end) if is_pair else None
