"""`unpaced serve`: settings, listener, model, and what the user is told meanwhile."""

import sys
from collections.abc import Sequence

from server.cli.flags import name_flag, read_settings
from server.settings import Settings, SettingsError


def serve(arguments: Sequence[str]) -> int:
    """Serve until a signal. Returns the exit status: 1 for what the user can put right."""
    try:
        settings = read_settings(arguments)
    except SettingsError as error:
        return _fail(str(error))
    return _serve(settings)


def _serve(settings: Settings) -> int:
    from engine_ext import EngineError
    from server.listener import ListenError, open_listener
    from server.process import ServerProcess

    if not settings.model.is_file():
        return _fail(f"cannot load model {settings.model}: no such file")
    try:
        listener = open_listener(settings.host, settings.port)
    except ListenError as error:
        return _fail(str(error))
    try:
        with listener:
            return ServerProcess(settings, listener).run()
    except EngineError as error:
        return _fail(str(error))
    except ValueError as error:
        return _fail(name_flag(str(error)))


def _fail(message: str) -> int:
    print(f"unpaced serve: error: {message}", file=sys.stderr)
    return 1
