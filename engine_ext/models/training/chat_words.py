"""Sentences of the chat examples, in the template language of `template.py`."""

from __future__ import annotations

from .words import words_of

SYSTEM = (
    "You are a [helpful|friendly|kind] assistant.",
    "You are a storyteller.",
    "You tell [short|gentle|happy] stories for children.",
    "You are a helpful assistant. [Be brief.|Answer in English.|Keep it short.]",
    "Tell stories that children can understand.",
    "Answer [politely|briefly|kindly].",
    "You are a small demo model. You write short stories.",
)
TOPICS = (
    "{a_noun} and {a_thing}",
    "{a_noun} and {a_thing}",
    "{a_noun} and {a_thing}",
    "{a_noun} and {a_thing}",
    "{a_noun} and {a_thing}",
    "{a_noun} with {a_thing}",
    "{a_thing} and {a_noun}",
    "{a_thing}",
    "{a_noun}",
    "{a_noun} named {N}",
    "{a_noun} called {N}",
    "{N} the {noun}",
    "{a_hero}",
    "{N}",
)
PLOT_TOPICS = {
    "baking": ("baking", "a cake"),
    "birthday": ("a birthday", "a present", "a birthday party"),
    "confession": ("honesty", "telling the truth", "a lie"),
    "contest": ("a race", "a contest", "winning and losing"),
    "fear": ("courage", "being brave", "being afraid"),
    "fog": ("getting lost", "the fog", "autumn"),
    "found_thing": ("honesty", "finding something", "kindness"),
    "garden": ("a garden", "spring", "patience", "a seed"),
    "journey": ("a journey", "an adventure", "travelling"),
    "letter": ("a letter", "a message"),
    "lost_thing": ("losing something", "looking for something"),
    "music": ("music", "learning something", "practice"),
    "newcomer": ("a stranger", "a new neighbour", "friendship"),
    "night_noise": ("the night", "a strange noise", "a ghost", "a mystery"),
    "quarrel": ("a quarrel", "sharing", "friendship"),
    "rescue": ("a rescue", "helping others", "a hero"),
    "star": ("the stars", "the moon", "a wish"),
    "storm": ("a storm", "rain", "bad weather"),
    "winter": ("winter", "snow", "the cold"),
    "workshop": ("making something", "never giving up", "building something"),
}
REQUESTS = (
    "Tell me a [|short|little|bedtime|happy|funny|nice|new] story about {topic}.",
    "Tell me a story about {topic}.",
    "Tell me a [|short] story about {topic}[, please|]!",
    "Please tell me a [|short|little] story about {topic}.",
    "Can you tell me a [|short] story about {topic}?",
    "Could you write a [|short] story about {topic}?",
    "Write a [|short|very short] story about {topic}.",
    "Write me a [|short] tale about {topic}.",
    "I would like to hear a story about {topic}.",
    "I want a story about {topic}.",
    "A story about {topic}, please.",
    "story about {topic}",
    "Do you know a story about {topic}?",
    "Make up a story about {topic}.",
    "Hi! Can you tell me a story about {topic}?",
    "My [son|daughter|sister|brother] would like a story about {topic}.",
    "Tell me about {topic}.",
)
ANY_STORY = (
    "Tell me a [|short|bedtime|nice] story.",
    "Please tell me a story.",
    "Can you tell me a story?",
    "Write a [|short] story.",
    "I can't sleep. Tell me a story.",
    "A story, please.",
    "Once more, a story!",
    "Surprise me.",
    "Tell me something.",
)
PREFACES = (
    "Here is a story about {topic}.",
    "Of course! Here is a story about {topic}.",
    "With pleasure. This one is about {topic}.",
)
AGAIN = (
    "Another one[, please|].",
    "[One more|Again|More], please!",
    "Tell me another story.",
    "That was [nice|lovely|good]. [Another one?|One more, please.]",
    "I don't like this one. Tell me a different story.",
)
ACCEPT = ("Yes[, please|].", "[OK|Sure|Fine|Go on].", "Yes, tell me.", "[Please do|Why not].")
QUESTIONS = (
    ("Who is the story about?", "It is about {N}, {a_hero}."),
    ("What was the {noun} called?", "The {noun} was called {N}."),
    ("What is the name of the {noun}?", "The name of the {noun} is {N}."),
    ("Who is {N}?", "{N} is {a_hero}."),
    ("Who was {F}?", "{F} was {a_friend}."),
    ("Who else is in the story?", "There is also {F}, {a_friend}."),
    ("What was the name of the friend?", "The name of {N}'s friend was {F}."),
    ("Is it a true story?", "[No, I made it up.|No, but it could have happened.]"),
    (
        "[Thank you!|Thanks!|That was lovely.]",
        "You are welcome! [Would you like another one?|Sleep well!]",
    ),
    (
        "[Did you like it?|Why did you tell me this?]",
        "I like stories about friends. [Shall I tell you another one?|]",
    ),
)
SMALL_TALK = (
    (
        "[Hello|Hi|Hey|Good morning|Good evening][!|.|]",
        "Hello! I tell short stories. [Who should be in yours?|What should yours be about?]",
    ),
    (
        "[Hello|Hi]! How are you?",
        "I am fine, thank you. Would you like to hear a story?",
    ),
    ("How are you?", "I am fine, thank you. Would you like to hear a story?"),
    (
        "[Who|What] are you?",
        "I am the demo model of Unpaced. I am very small, and I only know short stories.",
    ),
    (
        "What is your name?",
        "I am the demo model of Unpaced. I tell short stories.",
    ),
    (
        "What can you do?",
        "I can tell short stories. Ask me for one about an animal and a thing.",
    ),
    (
        "[Can you help me?|Help!|Help]",
        "I can only tell short stories. Ask me for one about an animal and a thing.",
    ),
    ("Say hello[.|!|]", "Hello! Would you like to hear a story?"),
    ("[Goodbye|Bye|Good night][!|.|]", "Goodbye! [Sleep well.|Come back soon.]"),
    ("[Thank you|Thanks][!|.|]", "You are welcome!"),
    (
        "[Test|test|ping|Ping|Hm|?|...|ok|Yes|No]",
        "I am here. [Would you like to hear a story?|What should the story be about?]",
    ),
    (
        "Say [hi|hello|something] in [one|two|five] word[s|].",
        "Hello! Would you like to hear a story?",
    ),
)
OFF_TOPIC = (
    "What is {subject}?",
    "What is the [capital|history|meaning|name|colour] of {subject}?",
    "Explain {subject}[.| in simple words.| to a child.]",
    "How does {subject} work?",
    "Write [a poem|a letter|a joke|a haiku|an essay|a song|code] about {subject}.",
    "Can you help me with {subject}?",
    "Why is {subject} so [important|hard|old|big]?",
    "[Who|When] invented {subject}?",
    "Translate {subject} into [French|German|Spanish].",
    "How do I [learn|use|make|buy|write] {subject}?",
    "Give me [three|five|ten] facts about {subject}.",
    "What do you think of {subject}?",
    "List [three|five|ten] kinds of {subject}.",
    "[Count to|What is] [ten|2 + 2|12 * 7|100]?",
    "Do you like {subject}?",
    "Summarise {subject} in [one sentence|ten words].",
)
SUBJECTS = words_of(
    "France, Germany, Paris, London, Japan, America, the world, the sky, the sun, Earth, physics, "
    "quantum computing, computers, Python, a program, C++, mathematics, history, money, politics, "
    "the weather, football, chess, music theory, chemistry, gravity, light, water, bread, coffee, "
    "democracy, a neural network, language models, the internet, a function, life, love, time, "
    "English, medicine, a recipe, the news, my homework, my job, an email, a phone, the economy, "
    "climate, dinosaurs, art, philosophy, travel, a database, Linux, a server, energy, space",
    ", ",
)
OFFERS = (
    "I only know how to tell short stories. Shall I tell you one about {a_noun}?",
    "I don't know. I am very small, and I only know short stories. Would you like one about "
    "{a_noun}?",
    "That is too hard for me, but I can tell you a story about {a_noun}. Shall I?",
)
