"""Flags that change no answer here: accepted, with one line that says why they do nothing."""

from typing import Final

from unpaced.cli.llama_flags.flag import LlamaFlag, make_flags

NOTICED: Final[list[LlamaFlag]] = [
    *make_flags(
        "--threads-http N LLAMA_ARG_THREADS_HTTP",
        "one event loop serves every connection; there are no HTTP threads to count",
    ),
    *make_flags(
        "-cb --cont-batching LLAMA_ARG_CONT_BATCHING",
        "requests in different slots always decode together",
        is_quiet=True,
    ),
    *make_flags(
        "-nocb --no-cont-batching LLAMA_ARG_NO_CONT_BATCHING",
        "requests in different slots always decode together; -np 1 serves them one by one",
    ),
    *make_flags("--perf LLAMA_ARG_PERF", "timings are in every answer and in /metrics"),
    *make_flags("--swa-full LLAMA_ARG_SWA_FULL", "it is so", is_quiet=True),
    *make_flags("--no-perf LLAMA_ARG_NO_PERF", "it is so", is_quiet=True),
    *make_flags(
        "-dt --defrag-thold N LLAMA_ARG_DEFRAG_THOLD",
        "the KV cache is not defragmented, and needs not be; llama.cpp ignores it too",
    ),
    *make_flags(
        """
        -Cb --cpu-mask-batch N
        -Crb --cpu-range-batch N
        --cpu-strict-batch N
        --prio-batch N
        """,
        "prompts are computed on the cores and with the priority of decoding",
    ),
    *make_flags(
        """
        -ctxcp --ctx-checkpoints --swa-checkpoints N LLAMA_ARG_CTX_CHECKPOINTS
        -cms --checkpoint-min-step N LLAMA_ARG_CHECKPOINT_MIN_SPACING_NT
        """,
        "no checkpoints are kept; what cannot be reused is computed again",
    ),
    *make_flags(
        "-bs --backend-sampling LLAMA_ARG_BACKEND_SAMPLING",
        "the GPU samples wherever it is exact, see --decode-loop; tokens are the same",
    ),
    *make_flags(
        """
        --pooling N LLAMA_ARG_POOLING
        --embd-normalize N
        """,
        "there are no embeddings",
    ),
    *make_flags(
        """
        --mmproj-auto LLAMA_ARG_MMPROJ_AUTO
        --no-mmproj --no-mmproj-auto LLAMA_ARG_NO_MMPROJ_AUTO
        """,
        "it is so",
        is_quiet=True,
    ),
    *make_flags(
        """
        --mmproj-offload LLAMA_ARG_MMPROJ_OFFLOAD
        --no-mmproj-offload LLAMA_ARG_NO_MMPROJ_OFFLOAD
        -mmdev --mmproj-device N MTMD_BACKEND_DEVICE
        --image-min-tokens N LLAMA_ARG_IMAGE_MIN_TOKENS
        --image-max-tokens N LLAMA_ARG_IMAGE_MAX_TOKENS
        --mtmd-batch-max-tokens N LLAMA_ARG_MTMD_BATCH_MAX_TOKENS
        --video-fps N LLAMA_ARG_VIDEO_FPS
        --video-timestamp-interval N LLAMA_ARG_VIDEO_TIMESTAMP_INTERVAL
        --video-ffmpeg-dir N LLAMA_ARG_VIDEO_FFMPEG_DIR
        --media-path N
        """,
        "text only: a request with an image, audio or video is refused",
    ),
    *make_flags(
        """
        --models-max N LLAMA_ARG_MODELS_MAX
        --models-autoload LLAMA_ARG_MODELS_AUTOLOAD
        --no-models-autoload LLAMA_ARG_NO_MODELS_AUTOLOAD
        """,
        "one process serves one model; without -m it is the built-in demo model",
    ),
    *make_flags("--tools-runtime N LLAMA_ARG_TOOLS_RUNTIME", "there are no built-in tools to run"),
    *make_flags(
        """
        --ui-config --webui-config N LLAMA_ARG_UI_CONFIG
        --ui-config-file --webui-config-file N LLAMA_ARG_UI_CONFIG_FILE
        """,
        "the page at / has no settings",
    ),
    *make_flags("-no-ag --no-agent LLAMA_ARG_NO_AGENT", "it is so", is_quiet=True),
    *make_flags(
        "--no-ui-mcp-proxy --no-webui-mcp-proxy LLAMA_ARG_NO_UI_MCP_PROXY",
        "it is so",
        is_quiet=True,
    ),
    *make_flags(
        """
        -lcs --lookup-cache-static N
        -lcd --lookup-cache-dynamic N
        -md --model-draft --spec-draft-model N LLAMA_ARG_SPEC_DRAFT_MODEL
        -hfd -hfrd --hf-repo-draft --spec-draft-hf N LLAMA_ARG_SPEC_DRAFT_HF_REPO
        -td --threads-draft --spec-draft-threads N
        -tbd --threads-batch-draft --spec-draft-threads-batch N
        -Cd --cpu-mask-draft --spec-draft-cpu-mask N
        -Crd --cpu-range-draft --spec-draft-cpu-range N
        --cpu-strict-draft --spec-draft-cpu-strict N
        --prio-draft --spec-draft-prio N
        --poll-draft --spec-draft-poll N
        -Cbd --cpu-mask-batch-draft --spec-draft-cpu-mask-batch N
        --cpu-strict-batch-draft --spec-draft-cpu-strict-batch N
        --prio-batch-draft --spec-draft-prio-batch N
        --poll-batch-draft --spec-draft-poll-batch N
        -otd --override-tensor-draft --spec-draft-override-tensor N
        -cmoed --cpu-moe-draft --spec-draft-cpu-moe LLAMA_ARG_SPEC_DRAFT_CPU_MOE
        -ncmoed --n-cpu-moe-draft --spec-draft-n-cpu-moe --spec-draft-ncmoe N \
            LLAMA_ARG_SPEC_DRAFT_N_CPU_MOE
        --spec-draft-n-max N LLAMA_ARG_SPEC_DRAFT_N_MAX
        --spec-draft-n-min N LLAMA_ARG_SPEC_DRAFT_N_MIN
        --draft-p-split --spec-draft-p-split N LLAMA_ARG_SPEC_DRAFT_P_SPLIT
        --draft-p-min --spec-draft-p-min N LLAMA_ARG_SPEC_DRAFT_P_MIN
        --spec-draft-backend-sampling LLAMA_ARG_SPEC_DRAFT_BACKEND_SAMPLING
        --no-spec-draft-backend-sampling LLAMA_ARG_NO_SPEC_DRAFT_BACKEND_SAMPLING
        -devd --device-draft --spec-draft-device N
        -ngld --gpu-layers-draft --n-gpu-layers-draft --spec-draft-ngl N \
            LLAMA_ARG_N_GPU_LAYERS_DRAFT
        -ctkd --cache-type-k-draft --spec-draft-type-k N LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K
        -ctvd --cache-type-v-draft --spec-draft-type-v N LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V
        --spec-type N LLAMA_ARG_SPEC_TYPE
        --spec-ngram-mod-n-min N
        --spec-ngram-mod-n-max N
        --spec-ngram-mod-n-match N
        --spec-ngram-simple-size-n N
        --spec-ngram-simple-size-m N
        --spec-ngram-simple-min-hits N
        --spec-ngram-map-k-size-n N
        --spec-ngram-map-k-size-m N
        --spec-ngram-map-k-min-hits N
        --spec-ngram-map-k4v-size-n N
        --spec-ngram-map-k4v-size-m N
        --spec-ngram-map-k4v-min-hits N
        --spec-default
        """,
        "nothing is speculated here; tokens are the same without",
    ),
]
