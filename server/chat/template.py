"""A chat template: Jinja text that makes a prompt of messages."""

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from server.errors import invalid

if TYPE_CHECKING:
    from engine_ext import ModelInfo

CHATML: Final = """{%- for message in messages -%}
  {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\\n' -}}
{%- endif -%}"""


class ChatTemplate:
    """Compiled once, rendered for every request."""

    def __init__(self, source: str, bos_token: str, eos_token: str) -> None:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        self._template = environment.from_string(source)
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}

    @staticmethod
    def of_model(model: "ModelInfo") -> "ChatTemplate":
        """The model's own template, else ChatML."""
        return _compile(model.chat_template or CHATML, model.bos_piece, model.eos_piece)

    def render(self, context: dict[str, Any]) -> str:
        """The prompt. Raises: ApiError (400) with the template's own message."""
        try:
            return self._template.render(self._tokens | context)
        except jinja2.TemplateError as error:
            raise invalid(f"chat template: {error}", param="messages") from None


@lru_cache(maxsize=8)
def _compile(source: str, bos_token: str, eos_token: str) -> ChatTemplate:
    return ChatTemplate(source, bos_token, eos_token)
