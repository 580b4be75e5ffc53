"""Flags that ask for something this server has not: refused, because answers would be others."""

from typing import Final

from unpaced.cli.llama_flags.flag import LlamaFlag, make_flags

REFUSED: Final[list[LlamaFlag]] = [
    *make_flags(
        """
        --embedding --embeddings LLAMA_ARG_EMBEDDINGS
        --rerank --reranking LLAMA_ARG_RERANKING
        --embd-gemma-default
        """,
        "embeddings and reranking are not served",
        is_refused=True,
    ),
    *make_flags(
        """
        -mm --mmproj N LLAMA_ARG_MMPROJ
        -mmu --mmproj-url N LLAMA_ARG_MMPROJ_URL
        --vision-gemma-4b-default
        --vision-gemma-12b-default
        """,
        "text only: images, audio and video are not served",
        is_refused=True,
    ),
    *make_flags(
        """
        --models-dir N LLAMA_ARG_MODELS_DIR
        --models-preset N LLAMA_ARG_MODELS_PRESET
        """,
        "one process serves one model; start one for each",
        is_refused=True,
    ),
    *make_flags(
        """
        --mcp-servers-config N LLAMA_ARG_MCP_SERVERS_CONFIG
        --mcp-servers-json N LLAMA_ARG_MCP_SERVERS_JSON
        -ag --agent LLAMA_ARG_AGENT
        --ui-mcp-proxy --webui-mcp-proxy LLAMA_ARG_UI_MCP_PROXY
        """,
        "this server runs no tools, no MCP servers and no proxy; clients do",
        is_refused=True,
    ),
    *make_flags(
        "-dr --docker-repo N LLAMA_ARG_DOCKER_REPO",
        "models come from a file (-m), a URL (-mu) or Hugging Face (-hf)",
        is_refused=True,
    ),
    *make_flags(
        """
        --fim-qwen-1.5b-default
        --fim-qwen-3b-default
        --fim-qwen-7b-default
        --fim-qwen-7b-spec
        --fim-qwen-14b-spec
        --fim-qwen-30b-default
        --gpt-oss-20b-default
        --gpt-oss-120b-default
        """,
        "there are no presets; -hf names the model, other flags the rest",
        is_refused=True,
    ),
    *make_flags(
        """
        --spec-synth-len N LLAMA_ARG_SPEC_SYNTH_LEN
        --spec-synth-rates N LLAMA_ARG_SPEC_SYNTH_RATES
        """,
        "nothing is speculated here, so that there is no acceptance to simulate",
        is_refused=True,
    ),
    *make_flags(
        """
        --draft --draft-n --draft-max N LLAMA_ARG_DRAFT_MAX
        --draft-min --draft-n-min N LLAMA_ARG_DRAFT_MIN
        --spec-ngram-size-n N
        --spec-ngram-size-m N
        --spec-ngram-min-hits N
        """,
        "llama-server has removed it",
        is_refused=True,
    ),
    *make_flags(
        "--log-prompts-dir N",
        "prompts are never written to files or logs",
        is_refused=True,
    ),
    *make_flags(
        "--kv-unified-per-slot N LLAMA_ARG_KV_UNIFIED_PER_SLOT",
        "slots have no limit of their own: -c says what they share, --no-kv-unified divides it",
        is_refused=True,
    ),
    *make_flags(
        """
        --control-vector N
        --control-vector-scaled N
        """,
        "control vectors are not applied here",
        is_refused=True,
    ),
    LlamaFlag(
        ("--control-vector-layer-range",),
        "control vectors are not applied here",
        n_values=2,
        is_refused=True,
    ),
    *make_flags("-cl --cache-list", "`hf cache ls` lists downloaded models", is_refused=True),
    *make_flags("--completion-bash", "there is no completion for shells", is_refused=True),
]
