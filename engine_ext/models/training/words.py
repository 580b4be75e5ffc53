"""Word lists of the story grammar: who, what, where, and the synonyms that templates pick from."""

from __future__ import annotations


def words_of(text: str, separator: str | None = None) -> tuple[str, ...]:
    """The parts of a list that is written as one string."""
    return tuple(text.split(separator))


# Names carry letters outside ASCII on purpose: the demo model then splits UTF-8 characters over
# tokens, as large models do, and the server's text path is exercised by its own demo.
GIRL_NAMES = words_of(
    "Zoë Åsa Inés Renée Chloé Anaïs Łucja Mia Lily Anna Rosa Clara Nora Ella Ruth Greta Ivy Maya "
    "Emma Lucy Alma Freya Tilda Hana Lena Daisy Molly Sofia Martha Alice Ida Jana Olive Pearl "
    "Wilma Zara"
)
BOY_NAMES = words_of(
    "José Noël Björn Jürgen Søren André Máté Tom Ben Max Leo Oscar Hugo Finn Paul Emil Otto Sam "
    "Theo Felix Jack Peter Ravi Kenji Omar Milo Anton Henry Arthur Bruno Caspar David Edgar "
    "Frank Gregor Walter"
)
# Friends are called differently from heroes, so that a story does not mix them up.
FRIEND_NAMES = frozenset(GIRL_NAMES[2::3] + BOY_NAMES[2::3])

ANIMALS = words_of(
    "fox bear rabbit mouse owl hedgehog squirrel badger otter frog duck goat cat dog pony crow "
    "turtle beaver hare mole wolf donkey goose pig penguin raccoon robin lamb sparrow snail"
)
# Seen less often, mostly in chats, so that a request for one of them is nothing new.
RARE_HEROES = words_of(
    "dragon lion tiger elephant monkey robot panda koala parrot crab bee butterfly dinosaur "
    "unicorn giant giraffe kangaroo camel crocodile zebra seal spider ghost troll dwarf whale "
    "dolphin shark fish eagle swan chicken horse cow sheep kitten puppy bat snake lizard llama "
    "alpaca moose reindeer gorilla hamster octopus ladybird worm dove peacock monster fairy "
    "mermaid snowman astronaut detective cook firefighter"
)
GIRLS = ("girl", "girl", "girl", "princess", "queen", "witch")
BOYS = ("boy", "boy", "boy", "prince", "king", "wizard")
WORKERS = words_of(
    "baker gardener painter shepherd teacher carpenter miller sailor farmer weaver clockmaker "
    "musician pirate knight doctor inventor"
)

EMOJI = {
    "fox": "🦊", "bear": "🐻", "rabbit": "🐰", "mouse": "🐭", "owl": "🦉", "hedgehog": "🦔",
    "frog": "🐸", "duck": "🦆", "cat": "🐱", "dog": "🐶", "turtle": "🐢", "wolf": "🐺", "pig": "🐷",
    "penguin": "🐧", "dragon": "🐉", "lion": "🦁", "tiger": "🐯", "elephant": "🐘", "robot": "🤖",
    "snail": "🐌", "bee": "🐝", "unicorn": "🦄",
}  # fmt: skip
ANY_EMOJI = ("🌙", "⭐", "🌈", "🎉", "🌻", "❤️", "😊", "🍀")

HERO_ADJECTIVES = words_of(
    "small little young curious shy brave cheerful quiet clever kind lonely gentle lively "
    "friendly hungry sleepy"
)
FRIEND_ADJECTIVES = words_of("old kind friendly wise gentle cheerful tiny tall quiet young clever")

THINGS = words_of(
    "kite lantern drum key map scarf bell ball book button flute hat umbrella basket mirror ring "
    "shell compass whistle feather spoon clock teapot blanket puppet crown coin violin cup ribbon "
    "rope telescope box pencil doll trumpet candle boat bottle cushion wheel stone leaf"
)
RARE_THINGS = words_of(
    "computer bicycle balloon camera guitar piano train car rocket sword ladder letter pen "
    "magnet bucket hammer needle jar moonstone sledge toy spaceship cake cookie pumpkin flower "
    "rose tree jacket coat mask net flag tent lamp fan wand carpet necklace bracelet sandwich "
    "banana pie phone television radio snowball skateboard bench bag purse brush painting "
    "photograph newspaper diamond pearl treasure pillow chair table mug plate"
)
THING_ADJECTIVES = words_of("red blue green yellow white silver golden little big old beautiful")

PLACES = (  # name, where, where to
    ("the river", "by the river", "to the river"),
    ("the forest", "in the forest", "to the forest"),
    ("the old mill", "at the old mill", "to the old mill"),
    ("the market", "at the market", "to the market"),
    ("the lake", "by the lake", "to the lake"),
    ("the meadow", "in the meadow", "to the meadow"),
    ("the beach", "on the beach", "to the beach"),
    ("the bridge", "at the bridge", "to the bridge"),
    ("the orchard", "in the orchard", "to the orchard"),
    ("the park", "in the park", "to the park"),
    ("the café", "at the café", "to the café"),
    ("the harbour", "at the harbour", "to the harbour"),
    ("the well", "at the well", "to the well"),
    ("the big oak tree", "under the big oak tree", "to the big oak tree"),
    ("the library", "at the library", "to the library"),
    ("the lighthouse", "at the lighthouse", "to the lighthouse"),
    ("the station", "at the station", "to the station"),
    ("the pond", "by the pond", "to the pond"),
    ("the windmill", "at the windmill", "to the windmill"),
    ("the castle", "at the castle", "to the castle"),
)
HOMES = (
    "in a small house near the woods",
    "in a cottage at the edge of the village",
    "in a little town by the sea",
    "in a quiet valley",
    "in a crooked house on a hill",
    "near a big forest",
    "at the end of a long road",
    "beside a slow green river",
    "in a house with a red roof",
    "on a small island",
    "behind the old mill",
    "at the foot of a mountain",
)
FOODS = words_of(
    "warm bread, apple pie, pea soup, honey cake, crêpes, pancakes, bread and cheese, "
    "blueberry muffins, hot soup, gingerbread, plum cake, nuts and raisins, baked potatoes, "
    "noodles, rice pudding, vanilla soufflé",
    ", ",
)
CAKES = words_of("an apple pie, a honey cake, a plum cake, a loaf of bread, a cheese pie", ", ")
FEARS = words_of(
    "the dark, thunder, deep water, high places, loud noises, the forest at night, being alone",
    ", ",
)
GOALS = words_of(
    "the sea, the great waterfall, the blue mountain, the big city, the old castle, "
    "the white lighthouse, the end of the world",
    ", ",
)

SYNONYMS = {
    "day": "morning|rainy morning|windy day|sunny day|warm afternoon|Sunday|cold day|"
    "spring morning|summer evening|fine day|Monday|autumn day",
    "grey": "grey|dark|cold|misty",
    "happy": "happy|glad|cheerful|delighted|pleased",
    "sad": "sad|unhappy|miserable|gloomy|lonely",
    "shy": "shy|nervous|small",
    "afraid": "afraid|frightened|scared",
    "softly": "softly|quietly|gently|in a low voice|at last|after a while",
}
