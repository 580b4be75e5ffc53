"""What the field matrix sends: every field of a completion, from absent to a wrong type."""

from typing import Any, Final

NULL: Final[list[Any]] = [None]
WRONG: Final[list[Any]] = ["x", 1.5, True, [], {}, [1], [[1, 2]], {"a": 1}]
INT_MAX: Final = 2**31 - 1

_WHOLE: Final[list[Any]] = [0, 1, 2, -1, -2, 3.0, INT_MAX, INT_MAX + 1, -(2**31), "1"]
_REAL: Final[list[Any]] = [0, 0.5, 1, 1.5, -1, -0.5, 100, 3e38, 1e39, "0.5"]
_SWITCH: Final[list[Any]] = [True, False, 0, 1, "true"]

_BY_KIND: Final[dict[str, tuple[list[Any], str]]] = {
    "whole": (
        _WHOLE,
        "n_predict max_completion_tokens max_tokens n_keep n_discard n_indent n n_cmpl "
        "n_cache_reuse id_slot t_max_predict_ms sse_ping_interval top_k repeat_last_n "
        "dry_allowed_length dry_penalty_last_n mirostat min_keep seed",
    ),
    "real": (
        _REAL,
        "temperature dynatemp_range dynatemp_exponent top_p min_p typical_p top_n_sigma "
        "xtc_probability xtc_threshold repeat_penalty frequency_penalty presence_penalty "
        "dry_multiplier dry_base mirostat_tau mirostat_eta adaptive_target adaptive_decay",
    ),
    "switch": (
        _SWITCH,
        "verbose timings_per_token cache_prompt return_tokens return_progress ignore_eos "
        "post_sampling_probs backend_sampling reasoning_control",
    ),
}

SPECIAL: Final[dict[str, list[Any]]] = {
    "n_probs": [0, 1, 5, 1000, INT_MAX, -1, -2, False, "1"],
    "logprobs": [0, 1, 5, 1000, -1, False, "1"],
    "stop": ["", "a", ["a", "b"], [""], ["a", ""], ["a"] * 20, [1], [None], 5],
    "samplers": [
        ["top_k", "temperature"],
        ["TOP-K", "nucleus", "temp", "typ", "topk"],
        ["top_k", "adaptive_p"],
        ["infill"],
        ["bogus"],
        "kpt",
        "edskypmxt",
        "kta",
        "",
        "zz",
        [5],
        ["typical_p", "typical", "tfs_z", "top_k"],
        ["typ-p", "topnsigma", " top_k", "top-n_sigma", "top_sigma"],
        "kzt",
    ],
    "logit_bias": [
        [[1, 2.5]],
        [[1, False]],
        [["ab", -1]],
        [[-1, 1]],
        [[10**7, 1]],
        [[1]],
        [[1, "x"]],
        [[1, True]],
        {"1": 5},
        {"ab": 1},
        {"-1": 1},
        {"1": False},
        {"1": "x"},
        5,
    ],
    "dry_sequence_breakers": [["\n"], ["a", "bc"], [""], ["", "a"], [5], "a"],
    "response_fields": [
        ["content"],
        ["generation_settings/seed", "no/such"],
        ["nothing"],
        [""],
        ["", "content"],
        "content",
        [5],
    ],
    "stream_options": [{"include_usage": True}, {"include_usage": False}, {"include_usage": 1}],
    "stream": [False, 0, "true"],
    "lora": [[{"id": 0, "scale": 1.0}], [{"id": 0, "scale": 0}], [{"id": -1, "scale": 1}], "x"],
    "grammar": ["", 'root ::= "a"', "root ::= ", "x", 'root ::= "a" b', 5],
    "json_schema": [{"type": "object"}, {"type": "integer"}, {"type": "bogus"}, True, "x"],
    "grammar_lazy": [False, True],
    "grammar_triggers": [[{"type": 1, "value": "a"}], [{"type": 9, "value": "a"}], ["a"]],
    "preserved_tokens": [["a"], ["<s>"], [5]],
    "reasoning_format": ["none", "auto", "deepseek", "deepseek-legacy", "bogus"],
    "model": ["gpt-4", ""],
    "echo": [False, 0, "true"],
    "reasoning_budget_tokens": [0, 5, -1, -2, "x"],
    "reasoning_budget_start_tag": ["<think>", ""],
    "reasoning_budget_end_tag": ["</think>", ""],
    "reasoning_budget_end_tags": [["</think>"], ["a", "b"], [""], [5], "</think>"],
    "reasoning_budget_message": ["", "enough"],
    "generation_prompt": ["", "a"],
    "speculative.n_max": [3, 0],
    "user": ["me"],
    "no_such_field": ["x"],
}

PROMPTS: Final[list[Any]] = [
    *("", "a", ["a"], ["a", "b"], [1, 2], [1, "a", 2], ["a", 1], [[1, 2], "a"], [[1], [2]]),
    *(None, [], [[]], ["a", []], {}, 5, True, 1.5, [1.5], [True], [None], [1, None], [[1, [2]]]),
    *([-1], [10**7], [2**31], {"prompt_string": "a"}, {"prompt_string": 5}),
    *([{"prompt_string": "a"}, "b"], {"prompt_string": "a", "multimodal_data": ["aGk="]}),
]

CHAT: Final[dict[str, list[Any]]] = {
    "top_logprobs": [0, 5, 20, -1, "1"],
    "add_generation_prompt": [True, False, "x"],
    "chat_template_kwargs": [{}, {"enable_thinking": True}, {"enable_thinking": "yes"}, 5],
    "reasoning_effort": ["none", "low", "high", "bogus", 5],
    "thinking_budget_tokens": [0, 5, -1, -2, "x"],
    "parallel_tool_calls": [True, False, "x"],
    "tool_choice": ["auto", "none", "required", "bogus", 5],
    "tools": [[], "x", [5]],
    "response_format": [
        {"type": "text"},
        {"type": "json_object"},
        {"type": "json_schema", "json_schema": {"schema": {"type": "integer"}}},
        {"type": "bogus"},
        {"type": 5},
        "text",
    ],
}

Case = tuple[str, str, Any]
"""Path, field, value."""


def make_cases() -> list[Case]:
    """All of them, in a definite order."""
    fields: dict[str, list[Any]] = {}
    for values, names in _BY_KIND.values():
        for name in names.split():
            fields[name] = [*NULL, *values, *WRONG]
    for name, values in SPECIAL.items():
        fields[name] = [*NULL, *values, *WRONG]
    # They would begin a stream, and a stream's status says less.
    fields["stream"] = [value for value in fields["stream"] if value is not True]
    cases: list[Case] = []
    for path in ("/completion", "/v1/completions", "/v1/chat/completions"):
        wanted = dict(fields)
        if path.endswith("chat/completions"):
            wanted |= {name: [*NULL, *values, *WRONG] for name, values in CHAT.items()}
        else:
            wanted["prompt"] = PROMPTS
        for name, values in wanted.items():
            cases += [(path, name, value) for value in values]
    return cases


def body_of(path: str, name: str, value: Any) -> dict[str, Any]:
    """A small request with the field in it."""
    body: dict[str, Any] = {"max_tokens": 2, "seed": 1}
    if path.endswith("chat/completions"):
        body["messages"] = [{"role": "user", "content": "a"}]
    else:
        body["prompt"] = "a"
    if name in ("n_predict", "max_completion_tokens"):
        del body["max_tokens"]
    return body | {name: value}
