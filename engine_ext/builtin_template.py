"""llama.cpp's built-in chat templates, which are code and not Jinja."""

import ctypes
from collections.abc import Sequence

import llama_cpp


def builtin_templates() -> list[str]:
    """The names that `format_chat` knows."""
    function = llama_cpp.llama_cpp._lib.llama_chat_builtin_templates
    function.restype = ctypes.c_int32
    function.argtypes = [ctypes.POINTER(ctypes.c_char_p), ctypes.c_size_t]
    n = function(None, 0)
    names = (ctypes.c_char_p * n)()
    function(names, n)
    return [(name or b"").decode() for name in names]


def format_chat(
    template: str, messages: Sequence[tuple[str, str]], *, add_generation_prompt: bool
) -> str:
    """The prompt of (role, content) messages. `template`: a name, or Jinja text that is recognised.

    Raises: ValueError if llama.cpp knows no such template.
    """
    chat = (llama_cpp.llama_chat_message * len(messages))(
        *(
            llama_cpp.llama_chat_message(
                role=role.encode(errors="replace"), content=content.encode(errors="replace")
            )
            for role, content in messages
        )
    )
    size = 1024 + 2 * sum(len(message.role) + len(message.content) for message in chat)
    while True:
        buffer = ctypes.create_string_buffer(size)
        n = llama_cpp.llama_chat_apply_template(
            template.encode(errors="replace"),
            chat,
            len(messages),
            add_generation_prompt,
            buffer,
            size,
        )
        if n < 0:
            raise ValueError("this template is none of llama.cpp's built-in ones")
        if n <= size:
            return buffer.raw[:n].decode(errors="replace")
        size = n
