"""Seeded random requests whose text a grammar dictates, with limits on the text's lines."""

import json
import random
from typing import Any, Final

_WORDS: Final = ("def f():", "x", "return 1", "}", "é", "日本", "# a b", "", " y")
_STOPS: Final = ("\n\n", "x\n", "}", "\n y", "1\n ")


def make_line_requests(n: int, seed: int) -> list[tuple[str, dict[str, Any]]]:
    """`n` requests with `n_indent`, half of them with stop strings or a token limit too."""
    r = random.Random(seed)
    requests = []
    for _ in range(n):
        lines = [_indented(r) for _ in range(r.randint(2, 7))]
        fields: dict[str, Any] = {
            "prompt": "a",
            "grammar": f"root ::= {json.dumps(chr(10).join(lines), ensure_ascii=False)}",
            "n_indent": r.choice((1, 2, 3, 4, 8)),
            "n_predict": r.choice((-1, -1, 200, r.randint(1, 30))),
            "seed": r.randrange(2**32 - 1),
            "temperature": r.choice((0.0, 1.0, 3.0)),
            "return_tokens": True,
            "cache_prompt": False,
        }
        if r.random() < 0.4:
            fields["stop"] = r.sample(_STOPS, r.randint(1, 2))
        requests.append(("lines", fields))
    return requests


def _indented(r: random.Random) -> str:
    return r.choice(("", " ", "  ", "    ", "    ", "\t", "\t\t", "      ")) + r.choice(_WORDS)
