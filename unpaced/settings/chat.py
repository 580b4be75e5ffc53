"""How messages become prompts, and answers messages."""

import json
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from unpaced.settings.options.option import Option
from unpaced.settings.options.option_group import OptionGroup
from unpaced.values.reasoning_format import ReasoningFormat


class ChatSettings(OptionGroup):
    """How messages become prompts, and answers messages."""

    group: ClassVar[str] = "Chat"

    jinja: Annotated[
        bool,
        Option(
            ("--jinja",),
            "render Jinja templates (the default); otherwise llama.cpp's built-in ones, no tools",
            env="JINJA",
            off_flags=("--no-jinja",),
        ),
    ] = True
    chat_template: Annotated[
        str,
        Option(
            ("--chat-template",),
            "Jinja text, or the name of one of llama.cpp's built-in templates; default: the "
            "model's own, else chatml",
            env="CHAT_TEMPLATE",
            metavar="TEMPLATE",
        ),
    ] = ""
    chat_template_file: Annotated[
        Path | None,
        Option(
            ("--chat-template-file",),
            "file with Jinja text; wins over --chat-template",
            env="CHAT_TEMPLATE_FILE",
            metavar="FILE",
        ),
    ] = None
    chat_template_kwargs: Annotated[
        str,
        Option(
            ("--chat-template-kwargs",),
            "JSON object of further variables of the template; a request's own win",
            env="CHAT_TEMPLATE_KWARGS",
            metavar="JSON",
        ),
    ] = ""
    reasoning: Annotated[
        Literal["on", "off", "auto"],
        Option(
            ("-rea", "--reasoning"),
            "on, off, or auto: as the template has it",
            env="REASONING",
            metavar="WHEN",
        ),
    ] = "auto"
    reasoning_format: Annotated[
        ReasoningFormat,
        Option(
            ("--reasoning-format",),
            "none: reasoning stays in content; deepseek or auto: it goes to reasoning_content; "
            "deepseek-legacy: to both",
            env="THINK",
            metavar="FORMAT",
        ),
    ] = "deepseek"
    reasoning_effort: Annotated[
        str,
        Option(
            ("--reasoning-effort",),
            "level given to the template, such as low or high; default: its own",
            env="REASONING_EFFORT",
            metavar="LEVEL",
        ),
    ] = "default"
    reasoning_budget: Annotated[
        int,
        Field(ge=-1),
        Option(
            ("--reasoning-budget",),
            "tokens of reasoning; -1: any, 0: none",
            env="THINK_BUDGET",
            metavar="N",
        ),
    ] = -1
    reasoning_budget_message: Annotated[
        str,
        Option(
            ("--reasoning-budget-message",),
            "written before the end of reasoning whose budget is used up",
            env="THINK_BUDGET_MESSAGE",
            metavar="TEXT",
        ),
    ] = ""
    reasoning_preserve: Annotated[
        bool,
        Option(
            ("--reasoning-preserve",),
            "keep the reasoning of all earlier turns in the prompt (the default), where the "
            "template can",
            env="REASONING_PRESERVE",
            off_flags=("--no-reasoning-preserve",),
        ),
    ] = True
    prefill_assistant: Annotated[
        bool,
        Option(
            ("--prefill-assistant",),
            "continue a last message that is the assistant's (the default)",
            env="PREFILL_ASSISTANT",
            off_flags=("--no-prefill-assistant",),
        ),
    ] = True
    skip_chat_parsing: Annotated[
        bool,
        Option(
            ("--skip-chat-parsing",),
            "whole answers in content: no reasoning, no tool calls",
            env="SKIP_CHAT_PARSING",
            off_flags=("--no-skip-chat-parsing",),
        ),
    ] = False

    @field_validator("chat_template_kwargs")
    @classmethod
    def _check_kwargs(cls, text: str) -> str:
        if text and not isinstance(json.loads(text), dict):
            raise ValueError("must be a JSON object")
        return text

    @field_validator("chat_template_file")
    @classmethod
    def _check_file(cls, path: Path | None) -> Path | None:
        if path is not None and not path.is_file():
            raise ValueError("there is no such file")
        if path is not None:
            _check_template(path.read_text(encoding="utf-8", errors="replace"))
        return path

    @field_validator("chat_template")
    @classmethod
    def _check_text(cls, text: str) -> str:
        if "{" in text:  # else it is a name, or has nothing that could be wrong
            _check_template(text)
        return text

    def template_override(self) -> str:
        """The template that the command line gives; empty: the model's own."""
        if self.chat_template_file is not None:
            return self.chat_template_file.read_text(encoding="utf-8", errors="replace")
        return self.chat_template

    def template_variables(self) -> dict[str, Any]:
        """Variables that every rendering gets unless a request has its own."""
        variables: dict[str, Any] = {"preserve_reasoning": self.reasoning_preserve}
        if self.chat_template_kwargs:
            variables |= json.loads(self.chat_template_kwargs)
        if self.reasoning != "auto":
            variables["enable_thinking"] = self.reasoning == "on"
        if self.reasoning_effort not in ("default", ""):
            variables["reasoning_effort"] = self.reasoning_effort
        return variables


def _check_template(source: str) -> None:
    # Jinja2 is large, and only needed here where a template is given.
    from unpaced.rendering.environment import TemplateFailure, check_syntax

    try:
        check_syntax(source)
    except TemplateFailure as error:
        raise ValueError(f"is no template: {error}") from None
