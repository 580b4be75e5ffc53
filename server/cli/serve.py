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
    from server.listener import ListenError, open_listeners
    from server.process import ServerProcess
    from server.tls import TlsError, check_certificate

    if not settings.model.is_file():
        return _fail(f"cannot load model {settings.model}: no such file")
    try:
        if settings.ssl_key_file is not None and settings.ssl_cert_file is not None:
            check_certificate(settings.ssl_key_file, settings.ssl_cert_file)
        listeners = open_listeners(settings.host, settings.port, reuse_port=settings.reuse_port)
    except (ListenError, TlsError) as error:
        return _fail(str(error))
    try:
        with listeners:
            return ServerProcess(settings, listeners).run()
    except EngineError as error:
        return _fail(str(error))
    except ValueError as error:
        return _fail(name_flag(str(error)))


def _fail(message: str) -> int:
    print(f"unpaced serve: error: {message}", file=sys.stderr)
    return 1
