"""GBNF with long terminals accepts what it accepts with a character a terminal, mask by mask."""

import itertools
import random
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.grammar.lark_masks import Vocabulary, tokens_of
from tests.support.grammar.random_grammar import random_gbnf
from unpaced.grammar.gbnf import MAX_NESTING, parse_gbnf
from unpaced.grammar.gbnf_lark import to_lark
from unpaced.grammar.gbnf_tree import GbnfError
from unpaced.grammar.terminals import with_terminals

END = frozenset({0})


@cache
def vocabulary() -> Vocabulary:
    """Texts of up to four letters, whole and broken characters."""
    texts = ["".join(t) for n in range(1, 5) for t in itertools.product("abc", repeat=n)]
    more = ["é".encode(), b"\xc3", b"\xa9", b"a\xc3", "éa".encode(), b" ", b"end", b"1.", b"\n"]
    return Vocabulary([text.encode() for text in texts] + more)


def lark(gbnf: str) -> tuple[str, str]:
    """With a character a terminal; with long terminals, if it is not too large for them."""
    rules = parse_gbnf(gbnf)
    by_character = to_lark(rules, {}, n_vocab=100, end_tokens=END)
    return by_character, to_lark(with_terminals(rules) or rules, {}, n_vocab=100, end_tokens=END)


def assert_same_masks(gbnf: str, rng: random.Random, n_walks: int = 2) -> int:
    """Along random texts. Returns the number of masks."""
    by_character, long = (vocabulary().start(text) for text in lark(gbnf))
    n_masks = 0
    for _ in range(n_walks):
        ours, reference = long.copy(), by_character.copy()
        text = b""
        for _ in range(8):
            expected = reference.mask()
            if expected is None:
                break
            assert ours.mask() == expected, (gbnf, text)
            n_masks += 1
            tokens = [t for t in tokens_of(expected) if t != vocabulary().end]
            if not tokens:
                break
            token = rng.choice(tokens)
            text += vocabulary().tokens[token]
            ours.accept(token)
            reference.accept(token)
    return n_masks


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1))
def test_random_grammars(seed: int) -> None:
    rng = random.Random(seed)
    assert assert_same_masks(random_gbnf(rng), rng) > 0


@pytest.mark.parametrize(
    "gbnf",
    [
        'root ::= [a-z]* "end" root?',
        'root ::= word (" " root)?\nword ::= [a-c]+ | "ab" [a-c]* "c"',
        'root ::= "a" root "c" | "ab"* [bc]*',
        'root ::= x x root?\nx ::= " "* "a" " "*',
        'root ::= ("a" | "ab" | "abc" root) ("c" | "bc")?',
        'root ::= n ("," root)?\nn ::= [0-9]+ ("." [0-9]+)? "."?',
        'root ::= "" | "a"? root?',
        'root ::= ("a"? "b"?){0,3} ("c" root)*',
        'root ::= [^a]+ "é" root?',
        'root ::= "a" root | "a"',
        'root ::= root "b" | "a" | "ab" "b"?',
    ],
)
def test_grammars_that_a_greedy_lexer_gets_wrong(gbnf: str) -> None:
    assert assert_same_masks(gbnf, random.Random(gbnf), n_walks=6) > 10


def test_a_large_terminal_is_cut_where_its_parts_meet() -> None:
    # The choices remember different things: each is small, all in one terminal are not. Apart from
    # the last "b", the readers have to see that the third choice could go on with it.
    choices = '[ab]* "a" [ab]{7} "c" | ([ab]{5})* "c" | [ab] ([ab] [^a])*'
    gbnf = f'root ::= ({choices}) "b"'
    assert assert_same_masks(gbnf, random.Random(3), n_walks=12) > 20


def n_terminals(gbnf: str) -> int:
    return sum(line.startswith("T") for line in lark(gbnf)[1].splitlines())


def test_terminals_are_long() -> None:
    item = 'root ::= item+\nitem ::= "- " [^\\n]+ "\\n"'
    assert n_terminals(item) == 1
    assert n_terminals('root ::= "(" root ")" | "once" | "once upon" | [0-9]{1,20} "." [0-9]+') == 5
    # After "end" the text may go on as [a-z]*, so here nothing can be longer than a character.
    assert n_terminals('root ::= [a-z]* "end" root?') == 4


def test_a_terminal_is_cut_no_shorter_than_needed() -> None:
    long = lark('root ::= "x = " [a-z]+ root?')[1]
    # [a-z]+ may be followed by "x"; "x = " is one terminal still, apart from its first character.
    assert "\\x{20}\\x{3D}\\x{20}" in long


@pytest.mark.parametrize(
    "gbnf",
    [
        'root ::= [ab]* "a" [ab]{200} root?',  # 2^200 states
        "root ::= " + " | ".join(f'"k{i}" [a-z]* root' for i in range(1000)) + ' | "x"',
    ],
)
def test_what_is_too_large_is_left_to_characters(gbnf: str) -> None:
    terminals = [line for line in lark(gbnf)[1].splitlines() if line.startswith("T")]
    # A class, or a character, each.
    assert not any("*" in line or "{200" in line for line in terminals)


def test_a_class_without_characters_is_refused_wherever_it_stands() -> None:
    for gbnf in ('root ::= "a"\nx ::= [z-a]', 'root ::= ("a" [z-a])*'):
        with pytest.raises(GbnfError, match="matches no character"):
            with_terminals(parse_gbnf(gbnf))


@pytest.mark.parametrize("inner", ['"b"', '"b" root?'])
def test_groups_nested_deeply(inner: str) -> None:
    gbnf = "root ::= " + '("a" ' * MAX_NESTING + inner + ")?" * MAX_NESTING + ' "c"'
    assert assert_same_masks(gbnf, random.Random(1), n_walks=6) > 10
