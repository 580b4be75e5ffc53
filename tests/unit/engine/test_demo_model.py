"""The built-in model: its file, its tokenizer, the stories it learnt from. Needs no torch."""

import random
import re
from collections.abc import Iterator
from pathlib import Path

import gguf
import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_ext.models.training import words
from engine_ext.models.training.bpe import Tokenizer, byte_characters, learn_merges, split_words
from engine_ext.models.training.chat import make_conversation
from engine_ext.models.training.corpus import BOS, CHAT_TEMPLATE, END, EOS, Corpus
from engine_ext.models.training.llama_check import LlamaModel, Sampling
from engine_ext.models.training.story import plot_names, tell_story
from engine_ext.models.training.template import article

MODEL_PATH = Path(__file__).parents[3] / "engine_ext" / "models" / "demo.gguf"
MAX_BYTES = 4_000_000


@pytest.fixture(scope="module")
def metadata() -> dict[str, object]:
    reader = gguf.GGUFReader(MODEL_PATH)
    return {name: value.contents() for name, value in reader.fields.items()}


@pytest.fixture(scope="module")
def tokenizer(metadata: dict[str, object]) -> Tokenizer:
    """The trainer's tokenizer, rebuilt from what the file holds."""
    tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    merges = metadata["tokenizer.ggml.merges"]
    assert isinstance(tokens, list) and isinstance(kinds, list) and isinstance(merges, list)
    bytes_of = {character: byte for byte, character in enumerate(byte_characters())}
    pairs = [tuple(bytes(map(bytes_of.__getitem__, side)) for side in m.split()) for m in merges]
    control = [t for t, kind in zip(tokens, kinds, strict=True) if kind == gguf.TokenType.CONTROL]
    return Tokenizer(tuple(control), [(left, right) for left, right in pairs])


@pytest.fixture(scope="module")
def model() -> Iterator[LlamaModel]:
    loaded = LlamaModel(MODEL_PATH)
    yield loaded
    loaded.close()


def test_file_is_small_enough() -> None:
    assert MODEL_PATH.stat().st_size <= MAX_BYTES


def test_metadata_describes_the_model(metadata: dict[str, object]) -> None:
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    assert metadata["general.architecture"] == "llama"
    assert metadata["general.name"] == "Unpaced demo stories"
    assert metadata["general.license"] == "MIT"
    assert metadata["general.file_type"] == gguf.LlamaFileType.MOSTLY_Q8_0
    assert metadata["llama.context_length"] == 1024
    assert metadata["llama.vocab_size"] == len(tokens) == len(set(tokens))
    assert tokens[int(str(metadata["tokenizer.ggml.bos_token_id"]))] == BOS
    assert tokens[int(str(metadata["tokenizer.ggml.eos_token_id"]))] == EOS
    assert tokens[int(str(metadata["tokenizer.ggml.eot_token_id"]))] == END
    assert metadata["tokenizer.ggml.add_bos_token"] is True
    assert metadata["tokenizer.chat_template"] == CHAT_TEMPLATE


def test_chat_template_uses_the_control_tokens(metadata: dict[str, object]) -> None:
    template = jinja2.Environment().from_string(str(metadata["tokenizer.chat_template"]))
    messages = [
        {"role": "developer", "content": " Be kind. "},
        {"role": "user", "content": "Hello!"},
        {"role": "assistant", "content": "Hi."},
        {"role": "tool", "content": "x"},
    ]
    text = template.render(messages=messages, add_generation_prompt=True)
    assert text == (
        "<|system|>Be kind.<|end|><|user|>Hello!<|end|><|assistant|>Hi.<|end|>"
        "<|user|>x<|end|><|assistant|>"
    )
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    assert set(re.findall(r"<\|\w+\|>", text)) <= set(tokens)


def test_every_byte_has_a_token(tokenizer: Tokenizer) -> None:
    assert set(map(bytes, zip(range(256), strict=True))) <= set(tokenizer.pieces)


@given(text=st.text())
def test_any_text_survives_the_tokenizer(tokenizer: Tokenizer, text: str) -> None:
    assert "".join(split_words(text)) == text
    assert tokenizer.decode(tokenizer.encode(text)) == text.encode()


def test_names_outside_ascii_are_split_inside_a_character(tokenizer: Tokenizer) -> None:
    pieces = [tokenizer.pieces[token] for token in tokenizer.encode(" Zoë 🦊")]
    assert b"\xc3" in pieces and b"\xf0" in pieces


def test_tokens_equal_llama_cpp(tokenizer: Tokenizer, model: LlamaModel) -> None:
    rng = random.Random(4)
    texts = [tell_story(rng).text for _ in range(200)]
    texts += [text for _ in range(100) for _, text in make_conversation(rng)]
    texts += ["", "  a  b\n\n c ", "it's 12 o'clock…", "日本語 Привет 👩‍🚀", "a<|end|>b"]
    for text in texts:
        expected = [tokenizer.control_id(BOS), *tokenizer.encode(text)]
        assert model.tokenize(text, add_special=True, parse_special=False) == expected
        assert model.text(expected) == text


def test_samples_end_and_keep_to_their_names(model: LlamaModel) -> None:
    # Arithmetic differs between processors, so the bounds leave room: 1 of 200 was bad in training.
    names = {*words.GIRL_NAMES, *words.BOY_NAMES}
    prompt = model.tokenize("Once upon a time", add_special=True, parse_special=False)
    good = 0
    for seed in range(10):
        tokens, ended = model.generate(prompt, seed, Sampling(), 400)
        found = {word.removesuffix("'s") for word in re.findall(r"[\w']+", model.text(tokens))}
        good += ended and 1 <= len(found & names) <= 2
    assert good >= 8


def test_chat_tells_about_the_animal_that_was_asked_for(model: LlamaModel) -> None:
    request = "<|user|>Tell me a story about a hedgehog.<|end|><|assistant|>"
    prompt = model.tokenize(request, add_special=True, parse_special=True)
    stories = [model.text(model.generate(prompt, seed, Sampling(), 400)[0]) for seed in range(5)]
    assert sum("hedgehog" in story for story in stories) >= 4


def check_prose(text: str) -> None:
    """Well-formed sentences: capitals, final punctuation, quotes in pairs, nothing left over."""
    assert not re.search(r"[\[\]{}<>|¶]|  |,,| [,.]|\.\.(?!\.)", text), text
    assert not re.search(r"\b[Aa] (?=[aeio])|\b[Aa]n (?![aeiouh])", text), text
    for paragraph in text.split("\n\n"):
        assert paragraph.count('"') % 2 == 0, paragraph
        assert re.match(r'"?[^\W\d_a-z]', paragraph), paragraph
        assert re.search(r'[.!?…]"?( [^\w\s]+)?$', paragraph), paragraph
        # After a full stop a sentence starts; after `?" ` the clause may go on.
        assert not re.search(r'\."? "?[a-z]', paragraph), paragraph


@pytest.mark.parametrize("plot", plot_names())
def test_every_plot_is_well_formed(plot: str) -> None:
    rng = random.Random(plot)
    for _ in range(100):
        story = tell_story(rng, plot=plot)
        check_prose(story.text)
        assert story.cast.hero.name in story.text
        assert story.cast.hero.name != story.cast.friend.name


def test_stories_keep_to_one_gender_a_name() -> None:
    rng = random.Random(5)
    for _ in range(200):
        story = tell_story(rng)
        if story.cast.hero.gender == story.cast.friend.gender == "f":
            assert not re.search(r"\b([Hh]e|[Hh]is|[Hh]im)\b", story.text), story.text


def test_stories_and_chats_are_deterministic() -> None:
    first, second = random.Random(6), random.Random(6)
    assert [tell_story(first).text for _ in range(20)] == [
        tell_story(second).text for _ in range(20)
    ]
    assert make_conversation(first) == make_conversation(second)


def test_conversations_alternate_and_answer_in_sentences() -> None:
    rng = random.Random(7)
    for _ in range(300):
        messages = make_conversation(rng)
        if messages[0][0] == "system":
            messages = messages[1:]
        assert messages
        assert [role for role, _ in messages] == ["user", "assistant"] * (len(messages) // 2)
        for role, text in messages:
            assert text == text.strip() and text
            if role == "assistant":
                check_prose(text)


def test_documents_learn_answers_only(tokenizer: Tokenizer) -> None:
    rng, corpus = random.Random(8), Corpus(tokenizer)
    user, assistant = tokenizer.control_id("<|user|>"), tokenizer.control_id("<|assistant|>")
    for _ in range(50):
        document = corpus.draw(rng)
        assert len(document.tokens) == len(document.weights)
        assert document.tokens[0] == tokenizer.control_id(BOS)
        assert document.tokens[-1] == tokenizer.control_id(EOS)
        if user in document.tokens:
            answer = document.tokens.index(assistant) + 1
            end = document.tokens.index(tokenizer.control_id(END), answer)
            assert not any(document.weights[1:answer])
            assert all(document.weights[answer : end + 1])


def test_merges_are_learnt_by_count_then_by_order() -> None:
    assert learn_merges(["abab abab", "cd"], 2) == [(b"a", b"b"), (b"ab", b"ab")]


@pytest.mark.parametrize(
    ("noun", "phrase"),
    [("owl", "an owl"), ("unicorn", "a unicorn"), ("umbrella", "an umbrella"), ("fox", "a fox")],
)
def test_article(noun: str, phrase: str) -> None:
    assert article(noun) == phrase
