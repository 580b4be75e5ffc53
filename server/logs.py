"""Structured logs on standard error: one line a request, none on the token path."""

import logging
import sys
from typing import TextIO

import structlog

from server.settings import Settings


class LogFileError(Exception):
    """The log file cannot be written; the text says which and why."""


def configure_logs(settings: Settings) -> None:
    """Route structlog's and the standard library's records through one formatter.

    Raises: LogFileError.
    """
    is_json = settings.logs_json
    shared: list[structlog.typing.Processor] = [structlog.contextvars.merge_contextvars]
    if settings.log_prefix or is_json:
        shared.append(structlog.stdlib.add_log_level)
    if settings.log_timestamps:
        shared.append(
            structlog.processors.TimeStamper(fmt="iso" if is_json else "%H:%M:%S", utc=is_json)
        )
    shared.append(structlog.processors.format_exc_info)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    root.handlers = _handlers(settings, shared)
    root.setLevel(settings.level.upper())
    if settings.level == "info":  # uvicorn's own start and stop messages repeat ours
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def _handlers(
    settings: Settings, shared: list[structlog.typing.Processor]
) -> list[logging.Handler]:
    if settings.log_disable:
        return [logging.NullHandler()]
    stream: TextIO = sys.stdout if settings.log_jsonl else sys.stderr
    handlers: list[logging.Handler] = [logging.StreamHandler(stream)]
    colors = settings.log_colors == "on" or (settings.log_colors == "auto" and stream.isatty())
    handlers[0].setFormatter(_formatter(settings, shared, colors=colors))
    if settings.log_file is not None:
        try:
            settings.log_file.write_bytes(b"")
            # Appending: the native libraries write to the same file.
            file = logging.FileHandler(settings.log_file, mode="a", encoding="utf-8")
        except OSError as error:
            raise LogFileError(
                f"--log-file: cannot write {settings.log_file}: {error.strerror}"
            ) from None
        file.setFormatter(_formatter(settings, shared, colors=False))
        handlers.append(file)
    return handlers


def _formatter(
    settings: Settings, shared: list[structlog.typing.Processor], *, colors: bool
) -> logging.Formatter:
    renderer: structlog.typing.Processor = structlog.processors.JSONRenderer()
    if not settings.logs_json:
        renderer = structlog.dev.ConsoleRenderer(
            colors=colors,
            exception_formatter=structlog.dev.plain_traceback,
            pad_event_to=8,
            sort_keys=False,
        )
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
    )
