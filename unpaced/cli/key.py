"""The API key that the client commands send."""

import os


def default_key() -> str:
    """The environment's, as the server reads it; the first where it holds several."""
    given = os.environ.get("UNPACED_API_KEY") or os.environ.get("LLAMA_API_KEY") or ""
    return given.partition(",")[0].strip()
