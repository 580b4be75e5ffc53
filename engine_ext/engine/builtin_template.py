"""llama.cpp's built-in chat templates, which are code and not Jinja."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine_ext.base.native import load_native

if TYPE_CHECKING:
    from engine_ext import _native
else:
    _native = load_native()


def builtin_templates() -> list[str]:
    """The names that `format_chat` knows."""
    return _native.builtin_chat_templates()


def format_chat(
    template: str, messages: Sequence[tuple[str, str]], *, add_generation_prompt: bool
) -> str:
    """The prompt of (role, content) messages. `template`: a name, or Jinja text that is recognised.

    Raises: ValueError if llama.cpp knows no such template.
    """
    chat = [(_encode(role), _encode(content)) for role, content in messages]
    prompt = _native.format_chat(_encode(template), chat, add_generation_prompt)
    return prompt.decode(errors="replace")


def _encode(text: str) -> bytes:
    return text.encode(errors="replace")
