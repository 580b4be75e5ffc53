"""Structured logs on standard error: one line a request, none on the token path."""

import logging
import sys
from collections.abc import Sequence
from typing import Protocol

import structlog

from engine_ext import LogTarget, NativeLog
from unpaced.process.plain_lines import ClockStamps, PlainLines
from unpaced.settings import Settings


class LogFileError(Exception):
    """The log file cannot be written; the text says which and why."""


class LineWriter(Protocol):
    """Writes as `engine_ext.NativeLog` does: nobody waits for it."""

    def write(self, target: LogTarget, text: str) -> int:
        """Lines, ended. How many were dropped since the last that was not; -1: these are."""


class LineHandler(logging.Handler):
    """Hands lines to a writer that drops some where nobody reads them; then says how many.

    `render` makes a line of an event of ours; the standard library's records have the formatter.
    """

    def __init__(
        self, writer: LineWriter, target: LogTarget, render: structlog.typing.Processor
    ) -> None:
        super().__init__()
        self._writer = writer
        self._target = target
        self._render = render

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record of the standard library's."""
        try:
            self._write(self.format(record))
        except Exception:
            self.handleError(record)

    def write_event(self, event: structlog.typing.EventDict) -> None:
        """Write an event of structlog's, which is used up."""
        try:
            self._write(str(self._render(None, "", event)))
        except Exception:
            self.handleError(logging.makeLogRecord({"name": "unpaced", "msg": "a log line"}))

    def _write(self, text: str) -> None:
        n_dropped = self._writer.write(self._target, text + "\n")
        if n_dropped > 0:
            text = f"{n_dropped} log lines were dropped: nobody read the log in time"
            told = logging.makeLogRecord({"name": "unpaced", "levelname": "WARNING",
                                          "levelno": logging.WARNING, "msg": text})  # fmt: skip
            self._writer.write(self._target, self.format(told) + "\n")


class EventLogger:
    """What structlog calls for each event.

    Events do not become records of the standard library's first: that took half of a line's time,
    which a rejected request mostly consists of.
    """

    def __init__(self, handlers: Sequence[logging.Handler]) -> None:
        self._handlers = [handler for handler in handlers if isinstance(handler, LineHandler)]

    def info(self, event: structlog.typing.EventDict) -> None:
        """Write it everywhere."""
        for handler in self._handlers:
            handler.write_event(dict(event))

    debug = warning = error = critical = exception = info


def _pass_on(
    _logger: object, _name: str, event: structlog.typing.EventDict
) -> tuple[tuple[structlog.typing.EventDict], dict[str, object]]:
    return (event,), {}


def configure_logs(settings: Settings, writer: LineWriter, *, keeps_file: bool = False) -> None:
    """Make structlog's events and the standard library's records lines of the same form.

    A log file begins anew, unless `keeps_file`: it tells why the server before this one ended.

    Raises: LogFileError.
    """
    is_json = settings.logs_json
    shared: list[structlog.typing.Processor] = []
    if settings.log_prefix or is_json:
        shared.append(structlog.stdlib.add_log_level)
    if settings.log_timestamps:
        iso = structlog.processors.TimeStamper(fmt="iso", utc=True)
        shared.append(iso if is_json else ClockStamps())
    shared.append(structlog.processors.format_exc_info)
    root = logging.getLogger()
    root.handlers = _handlers(settings, shared, writer, keeps_file=keeps_file)
    logger = EventLogger(root.handlers)
    structlog.configure(
        processors=[*shared, _pass_on],
        wrapper_class=structlog.make_filtering_bound_logger(
            "critical" if settings.log_disable else settings.level
        ),
        logger_factory=lambda *_: logger,
        cache_logger_on_first_use=True,
    )
    root.setLevel(settings.level.upper())
    if settings.level == "info":  # uvicorn's own start and stop messages repeat ours
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def open_log_file(settings: Settings, log: NativeLog) -> None:
    """Have the log append to --log-file, opened anew. Raises: LogFileError."""
    file = settings.log_file
    if file is None or settings.log_disable:
        return
    try:
        log.open_file(file)
    except OSError as error:
        raise LogFileError(f"--log-file: cannot write {file}: {error.strerror}") from None


def _handlers(
    settings: Settings,
    shared: list[structlog.typing.Processor],
    writer: LineWriter,
    *,
    keeps_file: bool,
) -> list[logging.Handler]:
    if settings.log_disable:
        return [logging.NullHandler()]
    stream = sys.stdout if settings.log_jsonl else sys.stderr
    targets = [LogTarget.STDOUT if settings.log_jsonl else LogTarget.STDERR]
    colors = settings.log_colors == "on" or (settings.log_colors == "auto" and stream.isatty())
    if settings.log_file is not None:
        try:
            with settings.log_file.open("ab" if keeps_file else "wb"):
                pass
        except OSError as error:
            raise LogFileError(
                f"--log-file: cannot write {settings.log_file}: {error.strerror}"
            ) from None
        targets.append(LogTarget.FILE)
    handlers: list[logging.Handler] = []
    for target in targets:
        is_colored = colors and target is not LogTarget.FILE
        renderer = _renderer(settings, colors=is_colored)
        handler = LineHandler(writer, target, renderer)
        handler.setFormatter(
            structlog.stdlib.ProcessorFormatter(
                foreign_pre_chain=shared,
                processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
            )
        )
        handlers.append(handler)
    return handlers


def _renderer(settings: Settings, *, colors: bool) -> structlog.typing.Processor:
    if settings.logs_json:
        return structlog.processors.JSONRenderer()
    if not colors:
        return PlainLines()
    return structlog.dev.ConsoleRenderer(
        colors=True,
        exception_formatter=structlog.dev.plain_traceback,
        pad_event_to=8,
        sort_keys=False,
    )
