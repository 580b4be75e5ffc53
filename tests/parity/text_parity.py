#!/usr/bin/env python3
"""/tokenize and /detokenize beside llama-server's, on strings and on lists of random tokens.

python -m tests.parity.text_parity --peer FOLDER --out docs/compat
"""

import argparse
import hashlib
import json
import sys
import unicodedata
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from tests.parity.pair import FAMILIES, Connection, serving_ours, serving_pair, tiny_model
from tests.parity.texts import make_texts, make_token_lists
from tests.support.llama.vocabulary_file import vocabulary_keys
from tests.support.llama_source import vocabulary

CONTROL: Final = 3  # LLAMA_TOKEN_TYPE_CONTROL
USER_DEFINED: Final = 4
FLAGS: Final = ("-c", "512")
N_SHOWN: Final = 20
N_RECORDED: Final = 1000  # requests a digest covers


@dataclass(slots=True)
class TextParity:
    """What one family's comparison found. Digests: sha256 of the peer's first answers.

    `unicode`: whose characters the strings are chosen from, which hangs on Python's version.
    """

    family: str
    n_strings: int
    unicode: str = unicodedata.unidata_version
    n_requests: int = 0
    n_different: int = 0
    differences: list[dict[str, Any]] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)


def read_vocabulary(family: str) -> tuple[tuple[str, ...], int]:
    """Texts of the control and user-defined tokens, at most 64; the number of all tokens."""
    keys = vocabulary_keys(vocabulary(family))
    _, pieces = keys["tokenizer.ggml.tokens"]
    _, types = keys["tokenizer.ggml.token_type"]
    kinds = (CONTROL, USER_DEFINED)
    found = [piece for piece, kind in zip(pieces, types, strict=True) if kind in kinds]
    return tuple(found[:64]) or ("<|none|>",), len(pieces)


def requests_of(family: str, n: int) -> dict[str, list[tuple[str, dict[str, Any]]]]:
    """Requests by kind: each string in one of the eight ways to ask, then random token lists."""
    specials, n_vocab = read_vocabulary(family)
    texts = make_texts(n, specials, seed=1)
    tokenize = []
    for i, text in enumerate(texts):
        ways = {
            "add_special": bool(i & 1),
            "parse_special": bool(i & 2),
            "with_pieces": bool(i & 4),
        }
        tokenize.append(("/tokenize", {"content": text, **ways}))
    lists = make_token_lists(n, n_vocab, seed=2)
    return {
        "tokenize": tokenize,
        "detokenize random tokens": [("/detokenize", {"tokens": tokens}) for tokens in lists],
    }


def round_trip(path: str, body: dict[str, Any], answer: Any) -> dict[str, Any] | None:
    """The /detokenize request that follows a /tokenize."""
    if path != "/tokenize":
        return None
    tokens = answer["tokens"]
    return {"tokens": [token["id"] if isinstance(token, dict) else token for token in tokens]}


Post = Callable[[str, dict[str, Any]], Any]


def digests(family: str, post: Post, n: int = N_RECORDED) -> dict[str, str]:
    """sha256 by kind of a server's answers to the first requests of each."""
    found: dict[str, str] = {}
    for kind, requests in requests_of(family, n).items():
        digest = hashlib.sha256()
        for path, body in requests:
            answer = post(path, body)
            digest.update(orjson.dumps(answer))
            follow = round_trip(path, body, answer)
            if follow is not None:
                digest.update(orjson.dumps(post("/detokenize", follow)))
        found[kind] = digest.hexdigest()
    return found


def compare(family: str, n: int, folder: Path) -> TextParity:
    """All requests of a family to both servers."""
    report = TextParity(family, n)
    with serving_pair(folder, tiny_model(family), *FLAGS) as pair:

        def ask(path: str, body: dict[str, Any]) -> Any:
            ours, theirs = pair.post(path, body)
            report.n_requests += 1
            if ours != theirs:
                report.n_different += 1
                if len(report.differences) < N_SHOWN:
                    shown = {"ours": ours.body, "peer": theirs.body}
                    report.differences.append({"path": path, "request": body, **shown})
            return theirs.body

        for requests in requests_of(family, n).values():
            for path, body in requests:
                follow = round_trip(path, body, ask(path, body))
                if follow is not None:
                    ask("/detokenize", follow)
        report.digests = digests(family, lambda path, body: pair.peer.post(path, body).body)
    return report


def our_digests(family: str) -> dict[str, str]:
    """Digests of our server alone, to compare with recorded ones."""

    def post(connection: Connection) -> Post:
        return lambda path, body: connection.post(path, body).body

    with serving_ours(tiny_model(family), *FLAGS) as connection:
        return digests(family, post(connection))


def main() -> int:
    """Command line. Exit status 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", type=Path, required=True, help="folder with llama-server")
    parser.add_argument("--family", action="append", choices=FAMILIES)
    parser.add_argument("-n", type=int, default=10_000, help="strings a family")
    parser.add_argument("--out", type=Path, help="folder for text.json")
    options = parser.parse_args()
    reports = []
    for family in options.family or FAMILIES:
        report = compare(family, options.n, options.peer)
        reports.append(report)
        print(f"{family}: {report.n_different} of {report.n_requests} answers differ", flush=True)
        for difference in report.differences[:5]:
            print(f"  {json.dumps(difference, ensure_ascii=True)[:600]}")
    if options.out:
        text = json.dumps([asdict(report) for report in reports], indent=1, ensure_ascii=True)
        (options.out / "text.json").write_text(text + "\n")
    return 1 if any(report.n_different for report in reports) else 0


if __name__ == "__main__":
    sys.exit(main())
