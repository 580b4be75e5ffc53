"""GBNF's tree to llguidance's Lark, exactly.

Every character of the grammar becomes a terminal of its own. llguidance's lexer takes the longest
match of a terminal and never goes back, so that `[a-z]* "end"` with longer terminals would not
accept "end"; with one character each there is nothing to go back to, and its Earley parser does
the rest, which is all that llama.cpp's stacks do.
"""

from collections.abc import Mapping
from typing import Final

from server.grammar.gbnf import (
    MAX_CODE_POINT,
    Chars,
    GbnfError,
    Group,
    Item,
    Reference,
    Repeat,
    Sequence,
    Token,
)

_SURROGATES: Final = (0xD800, 0xDFFF)  # no UTF-8 text has them


def token_texts(rules: Mapping[str, Group]) -> set[str]:
    """The tokens that the grammar names by their text."""
    found: set[str] = set()

    def visit(sequence: Sequence) -> None:
        for item in sequence:
            if isinstance(item, Token) and isinstance(item.token, str):
                found.add(item.token)
            elif isinstance(item, Group):
                for choice in item.choices:
                    visit(choice)
            elif isinstance(item, Repeat):
                visit(item.item)

    for group in rules.values():
        visit((group,))
    return found


def to_lark(
    rules: Mapping[str, Group],
    token_ids: Mapping[str, int],
    *,
    n_vocab: int,
    end_tokens: frozenset[int],
) -> str:
    """Lark for llguidance. `token_ids`: of `token_texts`. Raises: GbnfError."""
    return _Writer(rules, token_ids, n_vocab, end_tokens).write()


class _Writer:
    def __init__(
        self,
        rules: Mapping[str, Group],
        token_ids: Mapping[str, int],
        n_vocab: int,
        end_tokens: frozenset[int],
    ) -> None:
        self._rules = rules
        self._token_ids = token_ids
        self._n_vocab = n_vocab
        self._end_tokens = end_tokens
        self._names = {name: f"r{i}" for i, name in enumerate(rules)}
        self._terminals: dict[tuple[tuple[int, int], ...], str] = {}

    def write(self) -> str:
        lines = [f"start: {self._names['root']}"]
        for name, group in self._rules.items():
            lines.append(f"{self._names[name]}: {self._choices(group)}")
        for ranges, terminal in self._terminals.items():
            lines.append(f"{terminal}: /{_regex(ranges)}/")
        return "\n".join(lines) + "\n"

    def _choices(self, group: Group) -> str:
        return " | ".join(self._sequence(choice) for choice in group.choices)

    def _sequence(self, sequence: Sequence) -> str:
        return " ".join(self._item(item) for item in sequence) or '""'

    def _item(self, item: Item) -> str:
        if isinstance(item, Chars):
            return self._terminal(item)
        if isinstance(item, Reference):
            return self._names[item.name]
        if isinstance(item, Token):
            return self._token(item)
        if isinstance(item, Group):
            return f"({self._choices(item)})"
        if item.high == 0:
            return '""'
        inner = f"({self._sequence(item.item)})"
        bounds = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((item.low, item.high))
        if bounds is None:
            bounds = f"{{{item.low},{'' if item.high is None else item.high}}}"
        return inner + bounds

    def _terminal(self, chars: Chars) -> str:
        ranges = _normal(chars)
        if not ranges:
            raise GbnfError("a character class matches no character")
        return self._terminals.setdefault(ranges, f"C{len(self._terminals)}")

    def _token(self, token: Token) -> str:
        number = token.token if isinstance(token.token, int) else self._token_ids[token.token]
        if not token.negated:
            if number >= self._n_vocab:
                raise GbnfError(f"token {number} is not in the vocabulary")
            return f"<[{number}]>"
        others = sorted(self._end_tokens | ({number} if number < self._n_vocab else set()))
        return f"<[^{','.join(map(str, others))}]>"


def _normal(chars: Chars) -> tuple[tuple[int, int], ...]:
    """Ascending, disjoint ranges of characters that UTF-8 text can have."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(chars.ranges):
        if low > high:
            continue
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    if chars.negated:
        gaps, begin = [], 0
        for low, high in merged:
            if begin < low:
                gaps.append((begin, low - 1))
            begin = high + 1
        merged = [*gaps, (begin, MAX_CODE_POINT)]
    kept = []
    for low, high in merged:
        for first, last in (
            (low, min(high, _SURROGATES[0] - 1)),
            (max(low, _SURROGATES[1] + 1), high),
        ):
            if first <= min(last, MAX_CODE_POINT):
                kept.append((first, min(last, MAX_CODE_POINT)))
    return tuple(kept)


def _regex(ranges: tuple[tuple[int, int], ...]) -> str:
    parts = (
        f"\\x{{{low:X}}}" if low == high else f"\\x{{{low:X}}}-\\x{{{high:X}}}"
        for low, high in ranges
    )
    return f"[{''.join(parts)}]"
