"""What the groups of settings have in common."""

from pydantic import BaseModel, ConfigDict


class OptionGroup(BaseModel):
    """Some of the settings' fields. Only all of them together are ever checked and used, so
    pydantic makes a validator of `Settings` alone: one of each group would take as long again."""

    model_config = ConfigDict(defer_build=True)
