"""GBNF's tree to llguidance's Lark, exactly.

Every character becomes a terminal of its own, but for the longer terminals that
`unpaced.grammar.terminals` found to change nothing. llguidance's Earley parser does the rest, which
is all that llama.cpp's stacks do.
"""

from collections.abc import Mapping
from typing import Final

from unpaced.grammar.characters import ranges_of, regex_of
from unpaced.grammar.gbnf_tree import (
    Chars,
    GbnfError,
    Group,
    Item,
    Reference,
    Repeat,
    Sequence,
    Terminal,
    Token,
)

MAX_NESTED: Final = 12  # parentheses; llguidance's Lark takes somewhat more


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
        self._terminals: dict[str, str] = {}  # names by expression
        self._inner: list[str] = []  # rules of what is nested deeply
        self._depth = 0

    def write(self) -> str:
        lines = [f"start: {self._names['root']}"]
        for name, group in self._rules.items():
            lines.append(f"{self._names[name]}: {self._choices(group)}")
        lines += self._inner
        for regex, terminal in self._terminals.items():
            lines.append(f"{terminal}: /{regex}/")
        return "\n".join(lines) + "\n"

    def _choices(self, group: Group) -> str:
        return " | ".join(self._sequence(choice) for choice in group.choices)

    def _sequence(self, sequence: Sequence) -> str:
        return " ".join(self._item(item) for item in sequence) or '""'

    def _item(self, item: Item) -> str:
        if isinstance(item, Chars):
            return self._terminal(regex_of(ranges_of(item)))
        if isinstance(item, Terminal):
            return self._terminal(item.regex)
        if isinstance(item, Reference):
            return self._names[item.name]
        if isinstance(item, Token):
            return self._token(item)
        if isinstance(item, Group):
            return self._nested(item)
        if item.high == 0:
            return '""'
        first = item.item[0] if len(item.item) == 1 else None
        inner = self._nested(first if isinstance(first, Group) else Group((item.item,)))
        bounds = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((item.low, item.high))
        if bounds is None:
            bounds = f"{{{item.low},{'' if item.high is None else item.high}}}"
        return inner + bounds

    def _nested(self, group: Group) -> str:
        """In parentheses, or, where they are nested deeply, by the name of a rule of its own."""
        self._depth += 1
        choices = self._choices(group)
        self._depth -= 1
        if self._depth % MAX_NESTED != MAX_NESTED - 1:
            return f"({choices})"
        name = f"g{len(self._inner)}"
        self._inner.append(f"{name}: {choices}")
        return name

    def _terminal(self, regex: str) -> str:
        return self._terminals.setdefault(regex, f"T{len(self._terminals)}")

    def _token(self, token: Token) -> str:
        number = token.token if isinstance(token.token, int) else self._token_ids[token.token]
        if not token.negated:
            if number >= self._n_vocab:
                raise GbnfError(f"token {number} is not in the vocabulary")
            return f"<[{number}]>"
        others = sorted(self._end_tokens | ({number} if number < self._n_vocab else set()))
        return f"<[^{','.join(map(str, others))}]>"
