"""Settings as a command line gives them."""

from collections.abc import Sequence

from unpaced.cli.flags import read_command_line
from unpaced.settings import Settings


def read_settings(arguments: Sequence[str]) -> Settings:
    """The settings of `read_command_line`; raises what it raises."""
    return read_command_line(arguments).settings
