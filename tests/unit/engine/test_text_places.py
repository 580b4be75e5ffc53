"""Where texts are in a GBNF grammar: at one place there is one mask, llguidance's own."""

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_ext import GrammarPart
from engine_ext.base.native import load_native
from engine_ext.sequence.grammar_compiler import native_parts
from tests.support.grammar.lark_masks import tokens_of
from tests.support.grammar.random_grammar import random_gbnf
from tests.unit.grammar.test_terminals import END, vocabulary
from unpaced.grammar.engine_parts import MAX_PARTS, parts_of
from unpaced.grammar.gbnf import parse_gbnf
from unpaced.grammar.gbnf_lark import to_lark

if TYPE_CHECKING:
    from engine_ext import _native

Place = tuple[bool, tuple[int, int]]
ARITHMETIC = 'root ::= e\ne ::= t ([-+*/] t)*\nt ::= "(" e ")" | [0-9]+ | [a-z]+ | " " t'


class Places:
    """Of one grammar."""

    def __init__(self, gbnf: str) -> None:
        native = load_native()
        parts = native_parts(parts_of(parse_gbnf(gbnf)))
        self._places: _native.TextPlaces = native.TextPlaces(parts)

    def __getitem__(self, text: str | bytes) -> Place:
        return self._places.place(text if isinstance(text, bytes) else text.encode())

    def is_known(self, text: str | bytes) -> bool:
        return self[text][0]


def masks_by_place(gbnf: str, rng: random.Random) -> tuple[int, int]:
    """Along random texts; the masks of a place are the same. Number of masks, and of places."""
    start = vocabulary().start(to_lark(parse_gbnf(gbnf), {}, n_vocab=100, end_tokens=END))
    places, masks = Places(gbnf), dict[Place, bytes]()
    n_masks = 0
    for _ in range(6):
        reference, text = start.copy(), b""
        for _ in range(8):
            mask = reference.mask()
            if mask is None or not places.is_known(text):
                break
            assert masks.setdefault(places[text], mask) == mask, (gbnf, text)
            n_masks += 1
            tokens = [t for t in tokens_of(mask) if t != vocabulary().end]
            if not tokens:
                break
            token = rng.choice(tokens)
            text += vocabulary().tokens[token]
            reference.accept(token)
    return n_masks, len(masks)


@settings(max_examples=120, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1))
def test_random_grammars(seed: int) -> None:
    rng = random.Random(seed)
    masks_by_place(random_gbnf(rng), rng)


@pytest.mark.parametrize(
    "gbnf",
    [
        ARITHMETIC,
        'root ::= ("a"? "b"?){0,3} ("c" root)*',
        'root ::= [a-z]* "end" root?',
        'root ::= "a" root "c" | "ab"* [bc]*',
        'root ::= [^a]+ "é" root?',
        'root ::= ("a" | "ab"{2,3}){2,} "c"',
    ],
)
def test_texts_meet_again_and_have_the_same_mask(gbnf: str) -> None:
    n_masks, n_places = masks_by_place(gbnf, random.Random(gbnf))
    assert n_places < n_masks


def test_texts_that_go_on_alike_are_at_one_place() -> None:
    places = Places(ARITHMETIC)
    assert places["12+"] == places["(a)*(b-c)/ "] != places["("]
    assert places["(1"] == places["(2+34*5"] != places["((1"]
    assert places[b"12+"] != places[b"12+a"] != places[b"12+("]


def test_the_first_bytes_of_a_character_are_a_place_of_their_own() -> None:
    places = Places("root ::= [à-ÿ]*")
    assert places[b"\xc3"] == places["é".encode() + b"\xc3"] != places["é"]
    assert places["é"] == places["àé"]
    assert not places.is_known(b"\xa9") and not places.is_known(b"\xc3a")


def test_characters_of_every_length() -> None:
    places = Places('root ::= [é-ê]+ [€] [𝄞-𝄟] "\\x00"')
    assert all(places.is_known(text) for text in ("é", "éê€", "é€𝄞", "é€𝄟\0"))
    assert not any(places.is_known(text) for text in ("e", "€", "éé𝄞", "é€𝄠", "é€𝄞0"))


def test_what_never_ends_or_is_too_much_has_no_places() -> None:
    assert not Places('root ::= root "a" | "b"').is_known("")
    words = " | ".join(f'"{i:030}"' for i in range(1500))
    assert not Places(f"root ::= {words}").is_known("")
    places = Places(f'root ::= "a" ({words} | "b") | "b" "c"')
    for _ in range(2):
        assert [places.is_known(text) for text in ("", "a", "ab", "b")] == [
            True,
            False,
            False,
            True,
        ]
    assert Places('root ::= ("a"?)* "b" root?').is_known("abb")


def test_equal_parts_are_one_and_rules_may_recur() -> None:
    parts = parts_of(parse_gbnf('root ::= "aa" | "a" [a] root'))
    assert parts == [
        GrammarPart(choices=((1, 1), (1, 1, 0))),
        GrammarPart(ranges=((97, 97),)),
    ]
    assert parts_of(parse_gbnf('root ::= ("b"){2,}'))[-1].high is None


def test_grammars_of_tokens_or_of_very_many_parts_have_none() -> None:
    assert parts_of(parse_gbnf('root ::= <[5]> "a"')) == []
    many = "".join(chr(0x4E00 + i) for i in range(MAX_PARTS))
    assert parts_of(parse_gbnf(f'root ::= "{many}"')) == []
    assert len(parts_of(parse_gbnf(f'root ::= "{many[1:]}"'))) == MAX_PARTS
