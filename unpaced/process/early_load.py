"""The model's load, begun before most of the server is imported where both have a core."""

import time

from engine_ext import Engine, NativeLog
from unpaced.process.engine_watch import ENGINE_LOST
from unpaced.process.logs import configure_logs, open_log_file
from unpaced.process.past_servers import PastServers
from unpaced.settings import Settings


class EarlyLoad:
    """The process's log, which a load needs, and the engine. Once a process.

    `began_s`: when the engine began to load (time.monotonic); None: it has not, since it warms up
    with threads that wait for one another by spinning, and imports would take one's core.

    Raises: LogFileError; engine_ext's EngineError.
    """

    def __init__(self, settings: Settings) -> None:
        native_level = None if settings.log_disable else settings.level
        self.native_log = NativeLog(
            native_level, max_bytes=settings.log_queue_bytes, abort_status=ENGINE_LOST
        )
        is_supervised = PastServers.of_environment() is not None
        configure_logs(settings, self.native_log, keeps_file=is_supervised)
        open_log_file(settings, self.native_log)
        self.engine = Engine(settings.engine_config())
        self.began_s: float | None = None
        if self.engine.placement.leaves_a_core:
            self.began_s = time.monotonic()
            self.engine.begin_load()
