"""Structured logs on standard error: one line a request, none on the token path."""

import logging
import sys
from typing import Protocol

import structlog

from engine_ext.native_log import LogTarget
from server.settings import Settings


class LogFileError(Exception):
    """The log file cannot be written; the text says which and why."""


class LineWriter(Protocol):
    """As `engine_ext.NativeLog`: nobody waits for it."""

    def write(self, target: LogTarget, text: str) -> int:
        """Lines, ended. How many were dropped since the last that was not; -1: these are."""


class LineHandler(logging.Handler):
    """Hands lines to a writer that drops some where nobody reads them; then says how many."""

    def __init__(self, writer: LineWriter, target: LogTarget) -> None:
        super().__init__()
        self._writer = writer
        self._target = target

    def emit(self, record: logging.LogRecord) -> None:
        """Write it."""
        try:
            n_dropped = self._writer.write(self._target, self.format(record) + "\n")
            if n_dropped > 0:
                text = f"{n_dropped} log lines were dropped: nobody read the log in time"
                told = logging.makeLogRecord({"name": "unpaced", "levelname": "WARNING",
                                              "levelno": logging.WARNING, "msg": text})  # fmt: skip
                self._writer.write(self._target, self.format(told) + "\n")
        except Exception:
            self.handleError(record)


def configure_logs(settings: Settings, writer: LineWriter) -> None:
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
    root.handlers = _handlers(settings, shared, writer)
    root.setLevel(settings.level.upper())
    if settings.level == "info":  # uvicorn's own start and stop messages repeat ours
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def _handlers(
    settings: Settings, shared: list[structlog.typing.Processor], writer: LineWriter
) -> list[logging.Handler]:
    if settings.log_disable:
        return [logging.NullHandler()]
    stream = sys.stdout if settings.log_jsonl else sys.stderr
    targets = [LogTarget.STDOUT if settings.log_jsonl else LogTarget.STDERR]
    colors = settings.log_colors == "on" or (settings.log_colors == "auto" and stream.isatty())
    if settings.log_file is not None:
        try:
            settings.log_file.write_bytes(b"")
        except OSError as error:
            raise LogFileError(
                f"--log-file: cannot write {settings.log_file}: {error.strerror}"
            ) from None
        targets.append(LogTarget.FILE)
    handlers: list[logging.Handler] = []
    for target in targets:
        handler = LineHandler(writer, target)
        is_colored = colors and target is not LogTarget.FILE
        handler.setFormatter(_formatter(settings, shared, colors=is_colored))
        handlers.append(handler)
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
