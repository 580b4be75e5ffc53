"""Masks of GBNF grammars, token by token beside llama.cpp's own grammar sampler.

They may differ where llama.cpp's check is not about the text that a client sees: control tokens
(it matches their names, a client sees nothing), bytes that no UTF-8 text can have, NUL, and the
first bytes of a character that a negated class excludes in part.
"""

import ctypes
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import llama_cpp
import pytest

from engine_ext import Engine, EngineConfig, Grammar, GrammarTrigger
from unpaced.grammar.spec import GrammarSpec
from unpaced.request.compiled_grammar import compile_grammar

pytestmark = pytest.mark.anyio

DEMO_MODEL = Path(__file__).resolve().parents[2] / "engine_ext" / "models" / "demo.gguf"
ALLOWED = 0  # TokenMask.Verdict
REFUSED = 1  # a token that begins a text, which no grammar has within
JSON = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= "-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]+)? ([eE] [-+]? [0-9]+)? ws
ws     ::= | " " | "\n" [ \t]{0,20}
"""
GRAMMARS = [
    JSON,
    'root ::= [a-z]* "end"',  # a greedy lexer would never reach the end
    'root ::= ("a" | "b" "c"?){2,6} | [^a]+ "!"',
    'root ::= "once" | "once upon" | "once upon a" " time"',
    "root ::= .{1,8} [.!?]",
    "root ::= [à-ÿ]+ [a-z]{2,3}",
    'root ::= item+\nitem ::= "- " [^\\r\\n\\x0b\\x0c\\x85\\u2028\\u2029]+ "\\n"',
    'root ::= expr\nexpr ::= term ([-+*/] term)*\nterm ::= "(" expr ")" | [0-9]+ | [a-z]+',
    'root ::= <[300]> "a"* !<[301]> "b"',
    'root ::= "" | "x" root',
]


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    config = EngineConfig(model_path=DEMO_MODEL, n_ctx=128, n_threads=1)
    async with Engine(config) as running:
        yield running


@pytest.fixture
def vocab(engine: Engine) -> Iterator[Any]:
    del engine  # loads llama_cpp with a quiet log
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = True
    model = llama_cpp.llama_model_load_from_file(str(DEMO_MODEL).encode(), params)
    yield llama_cpp.llama_model_get_vocab(model)
    llama_cpp.llama_model_free(model)


class LlamaGrammar:
    """llama.cpp's sampler of one grammar."""

    def __init__(self, vocab: Any, gbnf: str, n_vocab: int) -> None:
        self._sampler = llama_cpp.llama_sampler_init_grammar(vocab, gbnf.encode(), b"root")
        assert self._sampler
        self._data = (llama_cpp.llama_token_data * n_vocab)()

    def allowed(self) -> set[int]:
        for i, entry in enumerate(self._data):
            entry.id, entry.logit = i, 1.0
        array = llama_cpp.llama_token_data_array(self._data, len(self._data), -1, False)
        llama_cpp.llama_sampler_apply(self._sampler, ctypes.byref(array))
        return {entry.id for entry in self._data if entry.logit > 0}

    def accept(self, token: int) -> None:
        llama_cpp.llama_sampler_accept(self._sampler, token)

    def free(self) -> None:
        llama_cpp.llama_sampler_free(self._sampler)


def may_differ(piece: bytes) -> bool:
    """Tokens that are not whole characters of text."""
    if not piece or piece.startswith(b"\0"):
        return True
    try:
        piece.decode()
    except UnicodeDecodeError:
        return True
    return False


@pytest.mark.parametrize("gbnf", GRAMMARS)
async def test_masks_are_llama_cpps(engine: Engine, vocab: Any, gbnf: str) -> None:
    grammar = await compile_grammar(engine, GrammarSpec("gbnf", gbnf))
    rng = random.Random(gbnf)
    pieces, ends, n_vocab = engine.token_pieces, engine.model.eog_tokens, engine.model.n_vocab
    n_states = n_ends = 0
    for _ in range(3):
        mask, reference = grammar.start(), LlamaGrammar(vocab, gbnf, n_vocab)
        for _ in range(12):
            ours = {token for token in range(n_vocab) if mask.check(token) == ALLOWED}
            theirs = reference.allowed()
            for token in ours ^ theirs:
                assert may_differ(pieces[token]) and token not in ends, (token, pieces[token])
            n_states += 1
            n_ends += bool(ours & ends)
            texts = sorted(token for token in ours & theirs - ends if not may_differ(pieces[token]))
            if not texts:
                break
            token = rng.choice(texts)
            mask.accept(token)
            reference.accept(token)
        assert not mask.failure
        reference.free()
    assert n_states > 3


async def masks_along(engine: Engine, grammar: Grammar, text: str) -> list[bytes]:
    """The masks of one sequence, before each token of the text and at its end."""
    sequence, masks = grammar.start(), list[bytes]()
    tokens = await engine.tokenize(text, add_special=False)
    for token in [*tokens, min(engine.model.eog_tokens)]:
        # Where masks take long, on a busy machine, one is made only when a token is refused.
        sequence.check(REFUSED)
        masks.append(sequence.words())
        sequence.accept(token)
    assert not sequence.failure
    return masks


async def test_masks_are_kept_for_the_same_place_of_any_text(engine: Engine) -> None:
    grammar = await compile_grammar(engine, GrammarSpec("gbnf", JSON))
    lines = '{"a": [1, 22, "é"], "b": {"c": true}}', '{"b": {}, "aa": [22, 1, "b é", [3]]}'
    first = await masks_along(engine, grammar, lines[0])
    n_kept = grammar.native.n_kept_masks
    assert 0 < n_kept < len(first)
    assert await masks_along(engine, grammar, lines[0]) == first
    assert grammar.native.n_kept_masks == n_kept
    assert await masks_along(engine, grammar, lines[1])
    # By a grammar that keeps none: its tokens are not text.
    other = GrammarSpec("gbnf", JSON.replace("::= object", "::= object | <[300]> <[300]>", 1))
    reference = await compile_grammar(engine, other)
    for line in lines:
        kept = await masks_along(engine, grammar, line)
        made = await masks_along(engine, reference, line)
        assert kept[1:] == made[1:]
    assert reference.native.n_kept_masks == 0


async def test_masks_behind_a_trigger_are_kept(engine: Engine) -> None:
    spec = GrammarSpec("gbnf", 'root ::= "<a>" [0-9]+', (GrammarTrigger(word=b"<a>"),))
    grammar = await compile_grammar(engine, spec)
    ends = set[bytes]()
    for free in ("Once", "Once upon"):
        for _ in range(2):
            ends.add((await masks_along(engine, grammar, f"{free} <a>12"))[-1])
    assert len(ends) == 1
    assert grammar.native.n_kept_masks == 2  # before the first digit, and behind it


async def test_single_tokens_and_masks_agree(engine: Engine) -> None:
    """What is asked of the grammar token by token is what its mask says."""
    grammar = await compile_grammar(engine, GrammarSpec("gbnf", JSON))
    rng = random.Random(4)
    n_vocab = engine.model.n_vocab
    for _ in range(5):
        by_mask = grammar.start()
        for _ in range(10):
            allowed = [t for t in range(n_vocab) if by_mask.check(t) == ALLOWED]
            words = by_mask.words()
            assert allowed == [t for t in range(n_vocab) if words[t // 8] >> t % 8 & 1]
            texts = [t for t in allowed if t not in engine.model.eog_tokens]
            if not texts:
                break
            by_mask.accept(rng.choice(texts))


@pytest.mark.parametrize(
    ("trigger", "gbnf", "free"),
    [
        (GrammarTrigger(word=b"<a>"), 'root ::= "<a>" [0-9]+', "Once upon < a <b <a>"),
        (GrammarTrigger(word=b"<a>", inside=False), "root ::= [0-9]+", "Once upon < a <b <a>"),
        (GrammarTrigger(token=300, inside=False), "root ::= [0-9]+", "Once upon"),
    ],
)
async def test_everything_is_free_until_the_trigger(
    engine: Engine, trigger: GrammarTrigger, gbnf: str, free: str
) -> None:
    mask = (await compile_grammar(engine, GrammarSpec("gbnf", gbnf, (trigger,)))).start()
    n_vocab = engine.model.n_vocab
    tokens = await engine.tokenize(free, add_special=False)
    if trigger.token >= 0:
        tokens.append(trigger.token)
    for token in tokens:
        assert all(mask.check(t) == ALLOWED for t in range(n_vocab))
        mask.accept(token)
    digits = {t for t in range(n_vocab) if engine.token_pieces[t].isdigit()}
    assert {t for t in range(n_vocab) if mask.check(t) == ALLOWED} == digits
