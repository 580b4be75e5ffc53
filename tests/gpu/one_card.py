"""The environment of a process that has one card, where this one may have several.

A model goes to the emptiest card; a test that measures a card's memory, or makes a GPU hang, has to
mean that card.
"""

import os


def one_card() -> dict[str, str]:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
    return {"CUDA_VISIBLE_DEVICES": visible.split(",")[0]}
