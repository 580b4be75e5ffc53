"""Imports structlog without what it imports only because it happens to be installed."""

import importlib
import sys
from types import ModuleType
from typing import cast


def import_structlog() -> None:
    """Before anybody else imports it, or it has no effect.

    structlog imports rich where it is installed, a tenth of a start, for tracebacks on a terminal;
    those of ours are plain ones. Afterwards rich can be imported as ever.
    """
    loaded = sys.modules.get("rich")
    sys.modules["rich"] = cast(ModuleType, None)  # an ImportError, which structlog expects
    try:
        importlib.import_module("structlog")
    finally:
        del sys.modules["rich"]
        if loaded is not None:
            sys.modules["rich"] = loaded
