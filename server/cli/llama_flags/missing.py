"""Flags that are not implemented yet; a setting with the same flag takes their place."""

from typing import Final

from server.cli.llama_flags.flag import LlamaFlag, make_flags

MISSING: Final[list[LlamaFlag]] = [
    *make_flags(
        """
        --jinja LLAMA_ARG_JINJA
        --kv-unified-per-slot N LLAMA_ARG_KV_UNIFIED_PER_SLOT
        --prefill-assistant LLAMA_ARG_PREFILL_ASSISTANT
        --no-skip-chat-parsing LLAMA_ARG_NO_SKIP_CHAT_PARSING
        --reasoning-preserve LLAMA_ARG_REASONING_PRESERVE
        --ui --webui LLAMA_ARG_UI
        --no-ui --no-webui LLAMA_ARG_NO_UI
        --ui-config --webui-config N LLAMA_ARG_UI_CONFIG
        --ui-config-file --webui-config-file N LLAMA_ARG_UI_CONFIG_FILE
        """,
        "not implemented yet; it has no effect",
    ),
    *make_flags(
        """
        --no-jinja LLAMA_ARG_NO_JINJA
        --chat-template N LLAMA_ARG_CHAT_TEMPLATE
        --chat-template-file N LLAMA_ARG_CHAT_TEMPLATE_FILE
        --chat-template-kwargs N LLAMA_ARG_CHAT_TEMPLATE_KWARGS
        --skip-chat-parsing LLAMA_ARG_SKIP_CHAT_PARSING
        --no-prefill-assistant LLAMA_ARG_NO_PREFILL_ASSISTANT
        --reasoning-format N LLAMA_ARG_THINK
        -rea --reasoning N LLAMA_ARG_REASONING
        --reasoning-effort N LLAMA_ARG_REASONING_EFFORT
        --reasoning-budget N LLAMA_ARG_THINK_BUDGET
        --reasoning-budget-message N LLAMA_ARG_THINK_BUDGET_MESSAGE
        --no-reasoning-preserve LLAMA_ARG_NO_REASONING_PRESERVE
        --path N LLAMA_ARG_STATIC_PATH
        --spm-infill
        --grammar N
        --grammar-file N
        -j --json-schema N
        -jf --json-schema-file N
        --control-vector N
        --control-vector-scaled N
        """,
        "not implemented yet",
        is_refused=True,
    ),
    LlamaFlag(("--control-vector-layer-range",), "not implemented yet", 2, is_refused=True),
]
