#!/usr/bin/env python3
"""Seeded requests with reasoning budgets to our server and to llama-server: the same tokens?

    python -m tests.parity.reasoning_parity --peer FOLDER --out docs/compat

`--peer` is a folder with llama-server of llama.cpp 0c1e57098; it runs with our build's libraries,
so that both sides compute the same logits. The model is random, with tokens for the tags; biases
make it think. Texts are compared without the white space around them, which differs
(docs/differences.md), and up to the first part of a character, which streams write otherwise.
"""

import argparse
import json
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from tests.parity.pair import Answer, Pair, serving_pair, tiny_model
from tests.support.llama_source import llama_source

FLAGS: Final = ("-c", "2048", "-t", "1", "-tb", "1", "--jinja")
BEGINNINGS: Final = {
    "": 0,
    "<|im_start|>assistant\n": 0,
    "<|im_start|>assistant\n<think>": 0,
    "<think>\n": 1,
    "<think>a</think>": 2,
    "<think>a b c d e": 5,
}
"""What the answer has begun with, and its tokens after the start tag, the end tag included."""
BUDGETS: Final = (0, 1, 2, 5, 50, -1)
MESSAGES: Final = ("", " stop now.", "\n\nEnough, \u00e9\u20ac.", "<tool_call>")
TEMPLATES: Final = {
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": (1, 1),
    "Qwen-Qwen3-0.6B": (0, 2),
    "Qwen3.5-4B": (1, 2),
}
"""By name: tokens that the prompt has after the start tag, by default and with thinking off."""
_PIECES: Final = (94, 95, 100, 101, 102, 159, 160, 164, 168, 170, 180)
"""Tokens of qwen2's vocabulary that are parts of characters."""
N_VOCAB: Final = 151936
Case = tuple[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Compared:
    """One request's answers, as far as they count."""

    path: str
    body: dict[str, Any]
    ours: Any
    peer: Any
    n_opened: int = 0
    """Tokens that the template's prompt has after the start tag; `n_closed`: with thinking off."""
    n_closed: int = 0

    @property
    def is_known(self) -> bool:
        """Where a prompt has used the budget up and goes on, llama-server takes the rest of it for
        the forced tokens (docs/differences.md)."""
        budget = self.body.get("thinking_budget_tokens", -1)
        budget = self.body.get("reasoning_budget_tokens", budget)
        thinking = self.body.get("thinking") or {}
        budget = thinking.get("budget_tokens", budget)
        if self.path == "/completion":
            has_tag = self.body["reasoning_budget_start_tag"] == "<think>"
            n_begun = has_tag * BEGINNINGS[self.body["generation_prompt"]]
        else:
            n_begun = self.n_closed if "chat_template_kwargs" in self.body else self.n_opened
        return bool(0 <= budget < n_begun)

    @property
    def is_equal(self) -> bool:
        """Statuses, tokens and texts. llama-server's streams lack the last characters where they
        come together with a part of another."""
        if self.body.get("stream") and len(self.ours) == len(self.peer) == 3:
            pairs = zip(self.ours[1:], self.peer[1:], strict=True)
            return self.ours[0] == self.peer[0] and all(
                a == b or (a.startswith(b) and len(a) - len(b) < 8) for a, b in pairs
            )
        return bool(self.ours == self.peer)


def tag_bias(rng: random.Random, n_vocab: int) -> list[list[float]]:
    """Biases that make the model begin and end reasoning now and then."""
    kind = rng.randrange(4)
    if kind == 0:
        return []
    biases: list[list[float]] = [[n_vocab - 2, rng.choice([11, 13])]]
    if kind == 1:
        return biases + [[token, 12] for token in _PIECES]
    return [*biases, [n_vocab - 1, rng.choice([8, 10, 12])]]


def raw_cases(n: int, seed: int, n_vocab: int) -> Iterator[Case]:
    """/completion with the fields that a chat's template would set."""
    rng = random.Random(seed)
    for i in range(n):
        body = {
            "prompt": f"Hello {i}",
            "seed": i,
            "n_predict": 40,
            "return_tokens": True,
            "cache_prompt": False,
            "temperature": rng.choice([0, 0.8, 1.5]),
            "reasoning_budget_tokens": rng.choice(BUDGETS),
            "reasoning_budget_start_tag": rng.choice(["<think>", "<think>", "I think"]),
            "reasoning_budget_message": rng.choice(MESSAGES),
            "generation_prompt": rng.choice(list(BEGINNINGS)),
            "logit_bias": tag_bias(rng, n_vocab),
        }
        ends = [["</think>"], ["\n</think>", "</think>", "<tool_call>"], ["END OF", "</think>"]]
        if rng.random() < 0.3:
            body["reasoning_budget_end_tag"] = "</think>"
        else:
            body["reasoning_budget_end_tags"] = rng.choice(ends)
        if rng.random() < 0.5:
            body |= {"xtc_probability": 0.5, "xtc_threshold": 0.02, "repeat_penalty": 1.2}
            body |= {"dry_multiplier": 0.8, "top_n_sigma": 1.5}
        if rng.random() < 0.1:
            body["mirostat"] = rng.choice([1, 2])
        if rng.random() < 0.2:
            body["n_probs"] = 3
        if rng.random() < 0.3:
            lazy = {"type": 0, "value": "</think>", "token": n_vocab - 1}
            body |= {"grammar": f"root ::= <[{n_vocab - 1}]> [a-z ]+", "grammar_lazy": True}
            body["grammar_triggers"] = [lazy]
        yield "/completion", body


def chat_cases(n: int, seed: int, n_vocab: int) -> Iterator[Case]:
    """Chats over the three APIs, streaming and not."""
    rng = random.Random(seed)
    for i in range(n):
        messages: list[dict[str, Any]] = [{"role": "user", "content": f"Hello {i}"}]
        common = {
            "seed": i,
            "cache_prompt": False,
            "temperature": rng.choice([0, 0.8, 1.5]),
            "logit_bias": tag_bias(rng, n_vocab),
            "stream": rng.random() < 0.4,
            "reasoning_control": rng.random() < 0.1,
        }
        budget = rng.choice(BUDGETS)
        message = {}
        if rng.random() < 0.7:
            message = {"reasoning_budget_message": rng.choice(MESSAGES[:-1])}
        kind = rng.randrange(6)
        if kind == 0 and budget >= 0:
            body = {"messages": messages, "max_tokens": 40, "stream": common["stream"]}
            body |= {"temperature": 0, "thinking": {"type": "enabled", "budget_tokens": budget}}
            yield "/v1/messages", body  # llama-server reads no fields there but Anthropic's
            continue
        name = rng.choice(["reasoning_budget_tokens", "thinking_budget_tokens"])
        body = common | message | {name: budget}
        if kind == 1:
            yield "/v1/responses", body | {"input": f"Hello {i}", "max_output_tokens": 40}
            continue
        body |= {"messages": messages, "max_tokens": 40, "return_tokens": True, "verbose": True}
        if rng.random() < 0.2:
            body |= {"chat_template_kwargs": {"enable_thinking": False}, "logit_bias": []}
        if rng.random() < 0.1:
            body["reasoning_format"] = "none"
        yield "/v1/chat/completions", body


def facts_of(path: str, answer: Answer) -> Any:
    """What is compared: the status, tokens where they are shown, the texts."""
    if answer.status != 200:
        return [answer.status]
    body = answer.body
    if isinstance(body, str):
        return [200, *map(comparable, streamed_texts(body))]
    if path == "/completion":
        return [200, body["tokens"], comparable(body["content"]), body["stop_type"]]
    if path == "/v1/messages":
        texts = {part["type"]: part.get("thinking") or part.get("text") for part in body["content"]}
        return [200, *(comparable(texts.get(kind)) for kind in ("thinking", "text"))]
    if path == "/v1/responses":
        texts = {item["type"]: item["content"][0]["text"] for item in body["output"]}
        return [200, *(comparable(texts.get(kind)) for kind in ("reasoning", "message"))]
    message = body["choices"][0]["message"]
    shown = (message.get("reasoning_content"), message["content"])
    return [200, body["__verbose"]["tokens"], *map(comparable, shown)]


def comparable(text: str | None) -> str:
    """As far as a text is the same however it was cut into pieces."""
    return (text or "").partition("\ufffd")[0].strip()


def streamed_texts(body: str) -> tuple[str, str]:
    """Reasoning and text of a stream of any of the APIs."""
    reasoning, text = "", ""
    for line in body.splitlines():
        if not line.startswith("data: {"):
            continue
        event = orjson.loads(line[6:])
        for choice in event.get("choices", []):
            reasoning += choice["delta"].get("reasoning_content") or ""
            text += choice["delta"].get("content") or ""
        delta, kind = event.get("delta"), event.get("type", "")
        if isinstance(delta, dict):
            reasoning += delta.get("thinking") or ""
            text += delta.get("text") or ""
        elif kind in ("response.reasoning_text.delta", "response.output_text.delta"):
            reasoning += delta if "reasoning" in kind else ""
            text += delta if "output" in kind else ""
    return reasoning, text


def run(pair: Pair, cases: Iterator[Case], begun: tuple[int, int] = (0, 0)) -> list[Compared]:
    """Ask both."""
    rows = []
    for path, body in cases:
        ours, peer = pair.post(path, body)
        rows.append(Compared(path, body, facts_of(path, ours), facts_of(path, peer), *begun))
    return rows


def main() -> int:
    """Command line. Exit status 1 if an answer differs for a reason that is not listed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", type=Path, required=True, help="folder with llama-server")
    parser.add_argument("-n", type=int, default=100, help="requests a template, and to /completion")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="folder for reasoning.json")
    options = parser.parse_args()
    model = tiny_model("qwen2", tags=True)
    report: dict[str, Any] = {}
    n_unknown = 0
    for i, (template, begun) in enumerate(TEMPLATES.items()):
        path = llama_source() / "models" / "templates" / f"{template}.jinja"
        with serving_pair(options.peer, model, *FLAGS, "--chat-template-file", str(path)) as pair:
            rows = run(pair, chat_cases(options.n, options.seed + i, N_VOCAB), begun)
            if i == 0:
                raw = run(pair, raw_cases(options.n, options.seed, N_VOCAB))
                report["/completion"] = summary(raw)
                n_unknown += show_unknown(raw)
        report[template] = summary(rows)
        n_unknown += show_unknown(rows)
    print(json.dumps(report, indent=1))
    if options.out:
        text = json.dumps({"seed": options.seed, "requests": report}, indent=1) + "\n"
        (options.out / "reasoning.json").write_text(text)
    return 1 if n_unknown else 0


def summary(rows: list[Compared]) -> dict[str, int]:
    """How many there were, and how many differ."""
    different = [row for row in rows if not row.is_equal]
    n_known = sum(row.is_known for row in different)
    return {
        "requests": len(rows),
        "answered": sum(row.peer[0] == 200 for row in rows),
        "equal": len(rows) - len(different),
        "different_as_listed": n_known,
        "different": len(different) - n_known,
    }


def show_unknown(rows: list[Compared]) -> int:
    """Print what differs for no listed reason."""
    unknown = [row for row in rows if not row.is_equal and not row.is_known]
    for row in unknown[:8]:
        print(row.path, json.dumps(row.body), row.ours, row.peer, sep="\n  ", flush=True)
    return len(unknown)


if __name__ == "__main__":
    sys.exit(main())
