"""instructor: five models, each parsed from every answer."""

import sys
from enum import Enum
from typing import Literal

import instructor
import openai
from pydantic import BaseModel, ConfigDict, Field

Word = Field(pattern="^[a-z]{1,8}$")
Small = Field(ge=0, le=9)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Closed(BaseModel):
    """No other fields: a model that knows no JSON would invent them without end."""

    model_config = ConfigDict(extra="forbid")


class Flag(Closed):
    is_on: bool


class Point(Closed):
    x: int = Small
    y: int = Small


class Pet(Closed):
    name: str = Word
    kind: Literal["cat", "dog"]
    colour: Colour


class House(Closed):
    place: Point
    pet: Pet | None


class Street(Closed):
    houses: list[Point] = Field(min_length=1, max_length=2)


def main(url: str, key: str) -> None:
    modes = [instructor.Mode.JSON_SCHEMA, instructor.Mode.TOOLS]
    for mode in modes:
        with openai.OpenAI(base_url=f"{url}/v1", api_key=key) as plain:
            client = instructor.from_openai(plain, mode=mode)
            for wanted in (Flag, Point, Pet, House, Street):
                for seed in range(2):
                    made = client.chat.completions.create(
                        model="demo",
                        messages=[{"role": "user", "content": "Make one up"}],
                        response_model=wanted,
                        max_retries=0,
                        max_tokens=400,
                        seed=seed,
                    )
                    assert isinstance(made, wanted), (mode, wanted)


if __name__ == "__main__":
    main(*sys.argv[1:3])
