"""Chat examples: story requests of many wordings, questions about the story, small talk, the rest.

A conversation is a list of (role, text). Whatever a user asks, the demo model answers with a story
or says that stories are all it knows, so that a chat window is never met with nonsense.
"""

from __future__ import annotations

import random
import re

from . import chat_words, words
from .cast import Cast
from .story import Story, tell_story
from .template import article, expand, fill

Message = tuple[str, str]


def make_conversation(rng: random.Random) -> list[Message]:
    """One conversation, mostly of one or two exchanges; a third begins with a system message."""
    messages: list[Message] = []
    if rng.random() < 0.3:
        messages.append(("system", _say(rng, rng.choice(chat_words.SYSTEM))))
    kind = rng.random()
    if kind < 0.16:
        question, answer = rng.choice(chat_words.SMALL_TALK)
        messages += _exchange(rng, question, answer)
        if rng.random() < 0.3:
            messages += _story_exchange(rng)[0]
    elif kind < 0.30:
        messages += _off_topic(rng)
    else:
        exchange, story = _story_exchange(rng)
        messages += exchange
        if rng.random() < 0.35:
            messages += _follow_up(rng, story)
        while rng.random() < 0.08:  # now and then a talk that fills the whole context
            messages += _story_exchange(rng)[0] + _story_exchange(rng)[0]
    return messages


def _say(rng: random.Random, template: str, **slots: str) -> str:
    return " ".join(expand(template, rng, slots.__getitem__).split())


def _exchange(rng: random.Random, question: str, answer: str, **slots: str) -> list[Message]:
    asked = _casual(rng, _say(rng, question, **slots))
    return [("user", asked), ("assistant", _say(rng, answer, **slots))]


def _casual(rng: random.Random, text: str) -> str:
    """People also type without capitals and without the last full stop."""
    if rng.random() < 0.12:
        text = text[0].lower() + text[1:]
    return text.rstrip(".") if rng.random() < 0.12 else text


def _topic_slots(cast: Cast) -> dict[str, str]:
    return {
        "a_noun": article(cast.hero.noun),
        "a_hero": cast.hero.phrase,
        "noun": cast.hero.noun,
        "a_friend": article(cast.friend.noun),
        "a_thing": article(cast.thing),
        "N": cast.hero.name,
        "F": cast.friend.name,
    }


def _topic(rng: random.Random, story: Story) -> str:
    """What the request asks for; only what the story really has."""
    if rng.random() < 0.12:
        return rng.choice(chat_words.PLOT_TOPICS[story.plot])
    wanted = rng.choice(chat_words.TOPICS)
    if "{a_thing}" in wanted and not _mentions(story.text, story.cast.thing):
        wanted = "{a_noun}"
    return fill(wanted, rng, _topic_slots(story.cast).__getitem__)


def _mentions(text: str, word: str) -> bool:
    return re.search(rf"\b{word}\b", text) is not None


def _tell(rng: random.Random) -> Story:
    """A story with a rare hero more often than the plain ones have it."""
    noun = rng.choice(words.RARE_HEROES) if rng.random() < 0.4 else None
    return tell_story(rng, noun=noun)


def _story_exchange(rng: random.Random) -> tuple[list[Message], Story]:
    story = _tell(rng)
    if rng.random() < 0.12:
        request = _say(rng, rng.choice(chat_words.ANY_STORY))
        return [("user", _casual(rng, request)), ("assistant", story.text)], story
    topic = _topic(rng, story)
    request = _casual(rng, _say(rng, rng.choice(chat_words.REQUESTS), topic=topic))
    answer = story.text
    if rng.random() < 0.15:
        preface = _say(rng, rng.choice(chat_words.PREFACES), topic=topic)
        answer = f"{preface}\n\n{answer}"
    return [("user", request), ("assistant", answer)], story


def _off_topic(rng: random.Random) -> list[Message]:
    """A question from another field: the answer offers a story, which may then be told."""
    subject = rng.choice(chat_words.SUBJECTS)
    question = rng.choice(chat_words.OFF_TOPIC)
    story = _tell(rng)
    slots = _topic_slots(story.cast) | {"subject": subject}
    messages = _exchange(rng, question, rng.choice(chat_words.OFFERS), **slots)
    if rng.random() < 0.4:
        yes = _casual(rng, _say(rng, rng.choice(chat_words.ACCEPT)))
        messages += [("user", yes), ("assistant", story.text)]
    return messages


def _follow_up(rng: random.Random, story: Story) -> list[Message]:
    if rng.random() < 0.3:
        again = _casual(rng, _say(rng, rng.choice(chat_words.AGAIN)))
        return [("user", again), ("assistant", _tell(rng).text)]
    slots = _topic_slots(story.cast)
    known = [pair for pair in chat_words.QUESTIONS if "{F}" not in pair[1]]
    if story.cast.friend.name in story.text:
        known = list(chat_words.QUESTIONS)
    question, answer = rng.choice(known)
    return _exchange(rng, question, answer, **slots)
