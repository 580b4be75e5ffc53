"""`unpaced serve`: settings, listener, model, and what the user is told meanwhile."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine_ext import ModelLoadError, check_model_file
from unpaced.cli.flags import Action, read_command_line
from unpaced.cli.models.model_word import is_model_word, source_flags
from unpaced.settings import Settings, SettingsError

if TYPE_CHECKING:
    from unpaced.http.wire.listener import Listeners


def serve(arguments: Sequence[str]) -> int:
    """Serve until a signal. Returns the exit status: 1 for what the user can put right."""
    try:
        command = read_command_line(_with_model_flag(arguments))
    except SettingsError as error:
        return _fail(str(error))
    settings = command.settings
    if command.action == "serve" and settings.supervise:
        return _supervise(settings)
    for notice in command.notices:
        print(f"unpaced serve: {notice}", file=sys.stderr)
    if command.action in ("serve", "dry-run") and (settings.hf_repo or settings.model_url):
        from unpaced.download.model import with_local_model
        from unpaced.download.transfer import DownloadError

        try:
            settings = with_local_model(settings, may_download=command.action == "serve")
        except DownloadError as error:
            return _fail(str(error))
    if command.action == "serve":
        return _serve(settings)
    return _instead(command.action, settings)


def _with_model_flag(arguments: Sequence[str]) -> list[str]:
    """`model.gguf -c 4096` as `--model model.gguf -c 4096`."""
    given = list(arguments)
    return source_flags(given[0]) + given[1:] if given and is_model_word(given[0]) else given


def _instead(action: Action, settings: Settings) -> int:
    """What is asked for in place of serving."""
    if action == "version":
        from unpaced.cli.version import show_version

        return show_version()
    if action == "print-config":
        from unpaced.cli.print_config import print_config

        return print_config(settings)
    from engine_ext import EngineError

    try:
        if action == "list-devices":
            from unpaced.cli.list_devices import show_devices

            return show_devices(settings.rpc_workers())
        from unpaced.cli.dry_run import dry_run
        from unpaced.process.context_check import check_context

        check_context(settings.engine_config())
        return dry_run(settings)
    except EngineError as error:
        return _fail(str(error))


def _supervise(settings: Settings) -> int:
    """Hold the sockets for a server in a process of its own, which does all the rest."""
    from unpaced.process.lean_structlog import import_structlog

    import_structlog()
    from unpaced.http.wire.listener import ListenError
    from unpaced.process.logs import LogFileError, configure_logs
    from unpaced.supervision.log_writer import LogWriter
    from unpaced.supervision.supervisor import Supervisor

    try:
        configure_logs(settings, LogWriter(settings.log_file))
        with _listeners(settings) as listeners:
            return Supervisor(settings, listeners).run()
    except (ListenError, LogFileError, ValueError) as error:
        return _fail(str(error))


def _listeners(settings: Settings) -> "Listeners":
    """What the service manager has opened, else what --host and --port say.

    Raises: ListenError; ValueError for Vertex AI's variables.
    """
    from unpaced.http.wire.inherited import inherited_listeners
    from unpaced.http.wire.listener import open_listeners
    from unpaced.routes.vertex import VertexAi

    inherited = inherited_listeners()
    if inherited is not None:
        return inherited
    vertex = VertexAi.from_environment()
    port = settings.port if vertex is None else vertex.port
    return open_listeners(settings.host, port, reuse_port=settings.reuse_port)


def _serve(settings: Settings) -> int:
    from unpaced.process.lean_structlog import import_structlog
    from unpaced.process.scheduling import (
        SchedulingError,
        use_address_space,
        use_cores,
        use_descriptors,
        use_priority,
    )

    try:
        check_model_file(settings.model)
        use_address_space(settings.model.stat().st_size)
        use_descriptors()
        # Before the libraries are loaded, some of which start threads at once.
        use_cores(settings.allowed_cores())
        use_priority(settings.prio)
    except (ModelLoadError, SchedulingError) as error:
        return _fail(str(error))
    import_structlog()
    from engine_ext import EngineError
    from unpaced.http.wire.descriptors import reserve_descriptors
    from unpaced.http.wire.listener import ListenError
    from unpaced.http.wire.tls import TlsError, check_certificate
    from unpaced.process.context_check import check_context
    from unpaced.process.early_load import EarlyLoad
    from unpaced.process.logs import LogFileError

    try:
        if settings.ssl_key_file is not None and settings.ssl_cert_file is not None:
            check_certificate(settings.ssl_key_file, settings.ssl_cert_file)
        listeners = _listeners(settings)
    except (ListenError, TlsError, ValueError) as error:
        return _fail(str(error))
    try:
        with listeners:
            reserve_descriptors()  # while there is one thread
            check_context(settings.engine_config())
            load = EarlyLoad(settings)
            from unpaced.process.process import ServerProcess  # most of a start's imports

            return ServerProcess(settings, listeners, load).run()
    except MemoryError:
        return _fail("there is not enough memory")
    except (EngineError, LogFileError) as error:
        return _fail(str(error).replace("std::bad_alloc", "there is not enough memory"))
    except ValueError as error:
        return _fail(settings.name_origin(str(error)))


def _fail(message: str) -> int:
    print(f"unpaced serve: error: {message}", file=sys.stderr)
    return 1
