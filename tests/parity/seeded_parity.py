#!/usr/bin/env python3
"""The same seeded requests to our server and to llama-server: are the answers the same?

    python -m tests.parity.seeded_parity --peer FOLDER --out docs/compat

`--peer` is a folder with llama-server of llama.cpp 0c1e57098; it runs with our build's libraries,
so that both sides compute the same logits. Sampling is on the CPU. `--lines`: instead texts that a
grammar dictates, which `n_indent` ends; to lines.json.
"""

import argparse
import json
import math
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.parity.line_requests import make_line_requests
from tests.parity.pair import FAMILIES, Pair, serving_pair, tiny_model
from tests.parity.sampled_requests import PROMPTS, make_requests
from tests.support.llama.vocabulary_file import vocabulary_keys
from tests.support.llama_source import vocabulary

# One thread, or the order of sums, and with it the logits, may differ from run to run.
FLAGS: Final = ("-c", "2048", "-t", "1", "-tb", "1")
EQUAL: Final = (
    "content",
    "stop_type",
    "stopping_word",
    "tokens_evaluated",
    "tokens_predicted",
    "tokens_cached",
    "truncated",
    "has_new_line",
    "prompt",
)
# llama-server sums the probabilities of a whole vocabulary in 32 bits: 4e-4 of 151 936 tokens.
LOGPROB_TOLERANCE: Final = 5e-4
N_SHOWN: Final = 50


@dataclass(slots=True)
class SeededParity:
    """Figures of one family, or of all."""

    family: str
    n_requests: int = 0
    n_positions: int = 0
    n_equal: int = 0
    n_greedy_positions: int = 0
    n_greedy_equal: int = 0
    n_probs: int = 0
    n_probs_equal: int = 0
    n_requests_equal: int = 0
    different_fields: dict[str, int] = field(default_factory=dict)
    divergences: list[dict[str, Any]] = field(default_factory=list)

    def add(self, other: "SeededParity") -> None:
        """Sum up."""
        for name, n in other.different_fields.items():
            self.different_fields[name] = self.different_fields.get(name, 0) + n
        for name in self.__slots__:
            if name not in ("family", "different_fields"):
                setattr(self, name, getattr(self, name) + getattr(other, name))

    def summary(self) -> str:
        """One line."""
        return (
            f"{self.family}: {self.n_requests_equal} of {self.n_requests} requests equal, tokens "
            f"{self.n_equal}/{self.n_positions}, greedy {self.n_greedy_equal}/"
            f"{self.n_greedy_positions}, probabilities {self.n_probs_equal}/{self.n_probs}, "
            f"fields {self.different_fields}"
        )


def read_vocabulary(family: str) -> tuple[int, int, bool]:
    """Number of tokens, the end-of-sequence token, and whether texts begin with BOS."""
    keys = vocabulary_keys(vocabulary(family))
    adds_bos = family.startswith("llama")  # the other two files say nothing of BOS
    return len(keys["tokenizer.ggml.tokens"][1]), keys["tokenizer.ggml.eos_token_id"][1], adds_bos


def compare_answers(
    report: SeededParity, kind: str, body: dict[str, Any], ours: Any, peer: Any
) -> None:
    """Count what is equal and keep what is not."""
    a, b = ours["tokens"], peer["tokens"]
    n_positions = max(len(a), len(b))
    n_equal = sum(x == y for x, y in zip(a, b, strict=False))
    report.n_requests += 1
    report.n_positions += n_positions
    report.n_equal += n_equal
    if kind == "greedy":
        report.n_greedy_positions += n_positions
        report.n_greedy_equal += n_equal
    ours, peer = flat(ours), flat(peer)
    wanted = (*EQUAL, *sorted(key for key in ours.keys() | peer.keys() if "/" in key))
    names = [name for name in wanted if ours.get(name) != peer.get(name)]
    if n_equal < n_positions:
        names.append("tokens")
    for name in names:
        report.different_fields[name] = report.different_fields.get(name, 0) + 1
    n_probs, n_probs_equal, worst = compare_probs(ours, peer)
    report.n_probs += n_probs
    report.n_probs_equal += n_probs_equal
    if names or n_probs_equal < n_probs:
        shown = {name: [ours.get(name), peer.get(name)] for name in names}
        report.divergences.append(
            {"kind": kind, "request": body, "different": shown, "worst_probability": worst}
        )
    else:
        report.n_requests_equal += 1


def flat(answer: Any) -> Any:
    """An answer with its generation settings as keys of their own."""
    settings = {f"settings/{key}": value for key, value in answer["generation_settings"].items()}
    return answer | settings


def compare_probs(ours: Any, peer: Any) -> tuple[int, int, float]:
    """Entries of llama-server's completion_probabilities, those that agree, the worst difference.

    llama-server writes as the text of the drawn token what it sent just then, and has no entry
    where that ends within a character; ours is the token's own, and every token has an entry
    (docs/differences.md). So entries are matched by token, and the drawn token's text is left out.
    """
    a = iter(ours.get("completion_probabilities", []))
    b = peer.get("completion_probabilities", [])
    n_equal, worst = 0, 0.0
    for y in b:
        x = next((entry for entry in a if entry["id"] == y["id"]), None)
        if x is None:
            break
        y |= {"token": x["token"], "bytes": x["bytes"]}
        same, distance = compare_entry(x, y)
        n_equal += same and distance <= LOGPROB_TOLERANCE
        worst = max(worst, distance)
    return len(b), n_equal, worst


def compare_entry(a: Any, b: Any) -> tuple[bool, float]:
    """Whether two entries have the same shape and tokens; their largest difference of values."""
    same, worst = a.keys() == b.keys(), 0.0
    for key in a.keys() & b.keys():
        if key in ("top_logprobs", "top_probs"):
            same &= len(a[key]) == len(b[key])
            for x, y in zip(a[key], b[key], strict=False):
                same_entry, distance = compare_entry(x, y)
                same &= same_entry
                worst = max(worst, distance)
        elif key in ("logprob", "prob"):
            if not math.isclose(a[key], b[key], rel_tol=1e-6):
                worst = max(worst, abs(a[key] - b[key]))
        else:
            same &= a[key] == b[key]
    return same, worst


def requests_of(family: str, n: int, seed: int, *, lines: bool) -> list[tuple[str, dict[str, Any]]]:
    """All requests of one family, with the names of their kinds."""
    if lines:
        return make_line_requests(n, seed)
    n_vocab, eos, adds_bos = read_vocabulary(family)
    prompts = PROMPTS if adds_bos else PROMPTS[:-1]  # without BOS an empty prompt is a 400 here
    return make_requests(n, n_vocab, eos, seed, prompts=prompts)


def run_family(pair: Pair, family: str, requests: list[tuple[str, dict[str, Any]]]) -> SeededParity:
    """All requests of one family."""
    report = SeededParity(family)
    for kind, body in requests:
        ours, peer = pair.post("/completion", body)
        if (ours.status, peer.status) == (200, 200):
            compare_answers(report, kind, body, ours.body, peer.body)
            continue
        report.n_requests += 1
        n_before = report.different_fields.get("status", 0)
        report.different_fields["status"] = n_before + 1
        statuses = {"status": [[ours.status, ours.body], [peer.status, peer.body]]}
        report.divergences.append({"kind": kind, "request": body, "different": statuses})
    return report


def main() -> int:
    """Command line. Exit status 1 below 99.9 % of positions, or if greedy ones differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", type=Path, required=True, help="folder with llama-server")
    parser.add_argument("--family", action="append", choices=FAMILIES)
    parser.add_argument("-n", type=int, default=125, help="requests a family")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lines", action="store_true", help="texts with limited lines instead")
    parser.add_argument("--out", type=Path, help="folder for seeded.json")
    options = parser.parse_args()
    total, reports = SeededParity("all"), []
    for family in options.family or FAMILIES:
        with serving_pair(options.peer, tiny_model(family), *FLAGS) as pair:
            requests = requests_of(family, options.n, options.seed, lines=options.lines)
            report = run_family(pair, family, requests)
        print(report.summary(), flush=True)
        for divergence in report.divergences[:5]:
            print(f"  {json.dumps(divergence, ensure_ascii=True)[:1500]}")
        total.add(report)
        reports.append(report)
    print(total.summary())
    if options.out:
        rows = [asdict(report) for report in (*reports, total)]
        for row in rows:
            row["divergences"] = row["divergences"][:N_SHOWN] if row["family"] != "all" else []
        text = json.dumps({"seed": options.seed, "families": rows}, indent=1, ensure_ascii=True)
        name = "lines.json" if options.lines else "seeded.json"
        (options.out / name).write_text(text + "\n")
    is_good = total.n_equal >= 0.999 * total.n_positions
    return 0 if is_good and total.n_greedy_equal == total.n_greedy_positions else 1


if __name__ == "__main__":
    sys.exit(main())
