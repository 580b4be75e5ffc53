"""The one exception of the build."""


class BuildError(Exception):
    """A failure that the user can act on; the message is the whole explanation."""
