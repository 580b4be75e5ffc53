"""What ends a model's reasoning, by its template."""

from unpaced.chat.templates import ReasoningTags


def reasoning_ends(source: str, tags: ReasoningTags) -> tuple[str, ...]:
    """The texts that end reasoning, the one to be forced first.

    Some models begin a tool call without ending their reasoning.
    Source: llama.cpp 0c1e57098, common/chat.cpp:1085-1225, common/parsers/qwen3-coder.cpp:28,
    common/parsers/ling3.cpp:39, common/parsers/deepseek.cpp:120.
    """
    if tags.start != "<think>":
        return (tags.end,)
    if "<role>ASSISTANT</role>" in source and "<arg_key>" in source:
        return (tags.end, "<tool_call>")
    if "dsml_token" in source and "DSML" in source:
        for block in ("function_calls", "tool_calls"):
            if block in source:
                return (tags.end, f"<\uff5cDSML\uff5c{block}>")
    marks = ("<tool_call>", "<function=", "<parameter=")
    other = "'<tool_call><function=' ~ tool_call.name ~ '>'"
    if all(mark in source for mark in marks) and other not in source:
        return ("\n" + tags.end, tags.end, "<tool_call>")
    return (tags.end,)
