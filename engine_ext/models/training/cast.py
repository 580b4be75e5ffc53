"""Who and what a story is about, drawn at random or fixed by a chat request."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from . import words
from .template import article

_PRONOUNS = {"f": ("she", "her", "her", "herself"), "m": ("he", "him", "his", "himself")}


@dataclass(frozen=True, slots=True)
class Character:
    """A person or an animal; `gender` is "f" or "m"."""

    name: str
    noun: str
    adjective: str
    gender: str

    @property
    def phrase(self) -> str:
        """For example "an old owl"."""
        return article(f"{self.adjective} {self.noun}")

    @property
    def pronouns(self) -> tuple[str, str, str, str]:
        """Subject, object, possessive, reflexive."""
        return _PRONOUNS[self.gender]


def _draw_noun(rng: random.Random, gender: str) -> str:
    people = words.GIRLS if gender == "f" else words.BOYS
    kind = rng.random()
    if kind < 0.58:
        return rng.choice(words.ANIMALS)
    if kind < 0.70:
        return rng.choice(words.RARE_HEROES)
    return rng.choice(people) if kind < 0.86 else rng.choice(words.WORKERS)


def _draw_hero(rng: random.Random, noun: str | None) -> Character:
    if noun in words.GIRLS or noun in words.BOYS:
        gender = "f" if noun in words.GIRLS else "m"
    else:
        gender = rng.choice("fm")
    names = words.GIRL_NAMES if gender == "f" else words.BOY_NAMES
    name = rng.choice(names)
    while name in words.FRIEND_NAMES and rng.random() < 0.9:
        name = rng.choice(names)
    noun = noun or _draw_noun(rng, gender)
    return Character(name, noun, rng.choice(words.HERO_ADJECTIVES), gender)


def _draw_friend(rng: random.Random, hero: Character) -> Character:
    gender = rng.choice("fm")
    names = words.GIRL_NAMES if gender == "f" else words.BOY_NAMES
    name = rng.choice([n for n in names if n in words.FRIEND_NAMES and n != hero.name])
    noun = _draw_noun(rng, gender)
    while noun == hero.noun:
        noun = _draw_noun(rng, gender)
    return Character(name, noun, rng.choice(words.FRIEND_ADJECTIVES), gender)


@dataclass(slots=True)
class Cast:
    """Everything that stays the same within one story, and what it has mentioned so far."""

    hero: Character
    friend: Character
    thing: str
    thing_adjective: str
    thing2: str
    place: tuple[str, str, str]
    place2: tuple[str, str, str]
    fixed: dict[str, str]
    friend_known: bool = field(default=False)
    thing_known: bool = field(default=False)

    def slot(self, name: str) -> str:
        """The text of `{name}`. A capital first letter is kept: `{The_thing}` -> "The kite"."""
        lower = name[0].lower() + name[1:]
        if name[0] == "F" and name not in {"F", "F_is"}:  # {Fhe}: {F} itself is a name
            return self.slot(lower).capitalize()
        if name[0].isupper() and name not in {"N", "F", "F_is"}:
            text = self.slot(lower)
            return text[0].upper() + text[1:]
        if name in {"F", "F_is", "a_f", "the_friend"}:
            return self._friend_slot(name)
        if "thing" in name:
            return self._thing_slot(name)
        return self.fixed[name]

    def _friend_slot(self, name: str) -> str:
        known, self.friend_known = self.friend_known, True
        friend = self.friend
        if name in {"F", "the_friend"} and not known:
            raise ValueError(f"the friend is not introduced before {{{name}}}")
        if name == "the_friend":
            return f"the {friend.noun}"
        if known or name == "F":
            return friend.name
        named = f"{friend.phrase} named {friend.name}"
        return named if name == "a_f" else f"{friend.name}, {friend.phrase},"

    def _thing_slot(self, name: str) -> str:
        if name == "a_thing2":
            return article(self.thing2)
        if name == "a_thing0":  # the idea of such a thing, not this one
            return article(self.thing)
        known, self.thing_known = self.thing_known, True
        if name == "thing":
            return self.thing
        return f"the {self.thing}" if known else article(f"{self.thing_adjective} {self.thing}")


def draw_cast(rng: random.Random, *, noun: str | None = None) -> Cast:
    """Draw a cast; `noun` fixes what kind of person or animal the hero is."""
    hero = _draw_hero(rng, noun)
    friend = _draw_friend(rng, hero)
    things = words.THINGS if rng.random() < 0.85 else words.RARE_THINGS
    thing = rng.choice(things)
    thing2 = rng.choice([other for other in words.THINGS if other != thing])
    place, place2 = rng.sample(words.PLACES, 2)
    he, him, his, himself = hero.pronouns
    fhe, fhim, fhis, _ = friend.pronouns
    fixed = {
        "N": hero.name, "a_hero": hero.phrase, "he": he, "him": him, "his": his,
        "himself": himself, "fhe": fhe, "fhim": fhim, "fhis": fhis,
        "place": place[0], "at": place[1], "to": place[2],
        "place2": place2[0], "at2": place2[1], "to2": place2[2],
        "home": rng.choice(words.HOMES), "food": rng.choice(words.FOODS),
        "bake": rng.choice(words.CAKES), "fear": rng.choice(words.FEARS),
        "goal": rng.choice(words.GOALS),
    }  # fmt: skip
    adjective = rng.choice(words.THING_ADJECTIVES)
    return Cast(hero, friend, thing, adjective, thing2, place, place2, fixed)
